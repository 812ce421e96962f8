// What a page can do beyond being read: change its light, copy code, find a claim. Without it the book reads the same.
const root = document.currentScript.dataset.root; // from this page to the top of the book

// light and dark: the system's choice until the reader makes one
const dark = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => (document.documentElement.dataset.theme ?? (dark.matches ? "dark" : "light")) === "dark";
const button = make("button", { type: "button", id: "theme" });
const name = () => { button.textContent = isDark() ? "Light" : "Dark"; button.ariaLabel = `${button.textContent} page`; };
button.addEventListener("click", () => {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  try { localStorage.setItem("theme", document.documentElement.dataset.theme); } catch { /* private window */ }
  name();
});
dark.addEventListener("change", name);
name();
document.querySelector(".bar").append(button);

// the cells' code, for who reads the statements and figures alone: shown until the reader hides it
if (document.querySelector(".cell > .code:not(.output)")) {
  const code = make("button", { type: "button", id: "code" });
  const hidden = () => document.documentElement.dataset.code === "hidden";
  const word = () => { code.textContent = hidden() ? "Show code" : "Hide code"; };
  code.addEventListener("click", () => {
    if (hidden()) delete document.documentElement.dataset.code;
    else document.documentElement.dataset.code = "hidden";
    try { localStorage.setItem("code", document.documentElement.dataset.code ?? "shown"); } catch { /* private window */ }
    word();
  });
  word();
  button.before(code);
}

for (const block of document.querySelectorAll(".code:not(.output)")) {
  const copy = make("button", { type: "button", className: "copy", textContent: "Copy" });
  copy.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(block.querySelector("pre").textContent.trimEnd());
      copy.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(block.querySelector("pre"));
      copy.textContent = "Press Ctrl+C";
    }
    setTimeout(() => { copy.textContent = "Copy"; }, 2000);
  });
  block.append(copy);
}

// the number of a statement, figure, formula or section is its address: a click copies it too
for (const number of document.querySelectorAll("main a.number")) {
  number.addEventListener("click", async () => {
    try { await navigator.clipboard.writeText(number.href); } catch { return; }
    number.dataset.copied = "";
    setTimeout(() => { delete number.dataset.copied; }, 2000);
  });
}

// on a narrow page the contents lie over the text and begin with its sections; closing them leads back to the place left
const sidebar = document.getElementById("sidebar");
const menu = document.querySelector(".bar .menu");
const sections = document.querySelector(".toc");
const narrow = matchMedia("(max-width: 59.99rem)");
const settleSections = () => { (narrow.matches ? sidebar.querySelector(".close") : document.getElementById("content")).after(sections); };
if (sections) {
  narrow.addEventListener("change", settleSections);
  settleSections();
}
let opened = false;
menu.addEventListener("click", () => { opened = true; });
const leave = (event) => {
  if (!opened || location.hash !== "#sidebar") return;
  opened = false;
  event.preventDefault();
  addEventListener("popstate", () => menu.focus({ preventScroll: true }), { once: true });
  history.back();
};
sidebar.querySelector(".close").addEventListener("click", leave);
document.addEventListener("keydown", (event) => { if (event.key === "Escape") leave(event); });

// Back closes what lies over the text before it leaves the page: that has a place in the history. What is closed by other
// means leaves its place empty, and Back passes over it.
let covering = null; // how to close what lies there
let above = Boolean(history.state?.above);
const cover = (shut) => {
  covering = shut;
  if (above) return;
  history.scrollRestoration = "manual"; // the text stays where it is
  history.replaceState({ ...history.state, below: true }, "");
  history.pushState({ above: true }, "");
  history.scrollRestoration = "auto";
  above = true;
};
const uncover = (shut) => { if (covering === shut) covering = null; };
addEventListener("popstate", ({ state }) => {
  const back = above && state?.below;
  above = Boolean(state?.above);
  if (!back) return;
  history.scrollRestoration = "auto";
  if (covering) covering();
  else history.back();
});

// where the reader is, in the list of sections
const entries = new Map([...document.querySelectorAll(".toc a")].map((a) => [a.hash.slice(1), a]));
const seen = new IntersectionObserver((changes) => {
  for (const { isIntersecting, target } of changes) {
    if (!isIntersecting) continue;
    for (const [id, entry] of entries) entry.classList.toggle("here", id === target.id);
  }
}, { rootMargin: "0px 0px -75% 0px" });
for (const id of entries.keys()) { const heading = document.getElementById(decodeURIComponent(id)); if (heading) seen.observe(heading); }

// paper shows everything: what is folded is open, and what would scroll is as small as the width of a page asks
const paper = 800; // pixels of this page's type
addEventListener("beforeprint", () => {
  for (const details of document.querySelectorAll("details")) details.open = true;
  for (const region of regions) {
    if (region.scrollWidth > paper) region.style.setProperty("--shrink", paper / region.scrollWidth);
  }
});
