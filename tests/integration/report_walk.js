// Opens every table and figure of a Snakemake report by clicking through it, as a reader would,
// and leaves what it saw as JSON in the page.
(async () => {
  const pause = (ms) => new Promise((done) => setTimeout(done, ms));
  const until = async (check) => {
    for (let i = 0; i < 200; i++) {
      const found = check();
      if (found) return found;
      await pause(25);
    }
    return null;
  };
  const item = (text) =>
    [...document.querySelectorAll("nav li, nav a")].find((e) => e.innerText.trim() === text);
  const seen = { front: "", opened: {}, captions: {} };
  const front = await until(() => document.querySelector(".prose"));
  seen.front = front ? front.innerText : "";
  const picture = front && (await until(() => front.querySelector("img[src^='data:']")));
  seen.picture = picture ? picture.naturalWidth : 0;
  seen.top = front ? front.getBoundingClientRect().top : null;
  for (const category of Object.keys(categories)) {
    app.setView({ navbarMode: "menu" });
    const entry = await until(() => item(category));
    (entry.querySelector("a") || entry).click();
    await until(() => document.querySelector("nav tbody tr"));
    const count = document.querySelectorAll("nav tbody tr").length;
    for (let row = 0; row < count; row++) {
      app.showCategory(category);
      await until(() => document.querySelectorAll("nav tbody tr").length === count);
      const line = document.querySelectorAll("nav tbody tr")[row];
      const label = line.innerText.trim();
      const [eye, info] = line.querySelectorAll("a");
      const before = app.state.renderTrigger;
      eye.click();
      await until(() => app.state.renderTrigger !== before);
      const shown = await until(() => {
        const image = document.querySelector(".p-3 > img");
        const frame = document.querySelector("iframe");
        if (app.state.content === "img" && image && image.naturalWidth) return image;
        if (app.state.content === "html" && frame) return frame;
      });
      seen.opened[label] = shown && {
        kind: shown.tagName,
        bytes: shown.src.length,
        width: shown.naturalWidth || shown.clientWidth,
        top: shown.getBoundingClientRect().top,
      };
      info.click();
      await until(() => app.state.navbarMode === "resultinfo");
      await pause(50);
      seen.captions[label] = document.querySelector("nav").innerText;
    }
  }
  const note = document.createElement("pre");
  note.id = "walk";
  note.textContent = JSON.stringify(seen);
  document.body.appendChild(note);
})();
