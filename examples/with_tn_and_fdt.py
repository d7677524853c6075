"""The loop of plain_pytorch.py with tensor normalization and full distribution training."""

import torch
from sklearn.datasets import load_digits
from torch import nn

from tnfdt import FullDistribution, insert_tensor_norm, multi_label_log_loss

torch.manual_seed(0)
digits = load_digits()
images = torch.tensor(digits.images * 255 / 16).to(torch.uint8)[:, None]  # [1797, 1, 8, 8]
labels = torch.tensor(digits.target)
train_x, test_x, train_y, test_y = images[:1300], images[1300:], labels[:1300], labels[1300:]

model = nn.Sequential(
    nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
    nn.Conv2d(32, 64, 3, padding=1, stride=2), nn.BatchNorm2d(64), nn.ReLU(),
    nn.Flatten(), nn.Linear(64 * 4 * 4, 10),
)  # fmt: skip
insert_tensor_norm(model)  # Eq. 1 after every ReLU; no parameters
blends = FullDistribution(train_x, train_y, num_classes=10)  # Eqs. 2-4
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.05, total_steps=400)

for _ in range(400):
    batch = blends.batch(100)
    loss = multi_label_log_loss(model(batch.images / 255), batch.targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()

model.eval()
with torch.no_grad():
    right = model(test_x / 255).argmax(1) == test_y
print(f"accuracy {100 * right.float().mean():.1f} % on {len(test_y)} test images")
