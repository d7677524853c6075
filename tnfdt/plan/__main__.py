"""`python -m tnfdt.plan JOBS`: the estimate in a run's banner; the machine comes by stdin."""

import json
import sys

from tnfdt import devices
from tnfdt.plan.forecast import estimate
from tnfdt.study.machine import machine_from_dict
from tnfdt.study.schema import UserError, refuse
from tnfdt.study.study import load_study

machine = machine_from_dict(json.load(sys.stdin))
try:
    devices.check(machine.device)
except UserError as error:  # such as a driver that is too old for torch
    sys.exit(refuse(error))
print(estimate(load_study(machine.study, machine.results_dir), machine, int(sys.argv[1])))
