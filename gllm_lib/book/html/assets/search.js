// find a claim, figure, table or chapter by its words or its label: the list comes with the book, so it works from disk
const sidebar = document.getElementById("sidebar");
const field = make("input", { type: "search", placeholder: "Find a claim, figure or label", ariaLabel: "Find a claim, figure, table, chapter or label" });
const hits = make("ol", {});
sidebar.querySelector(".close").after(make("div", { className: "search" }, field, hits));
const most = 12;
let index = null; // until its file has come, nothing is found and nothing is said to be missing
field.addEventListener("focus", () => {
  if (document.getElementById("index")) return;
  const script = make("script", { id: "index", src: `${root}assets/index.js` });
  script.addEventListener("load", () => { index = window.bookIndex; find(); });
  document.head.append(script);
});
const find = () => {
  if (!index) return;
  const words = field.value.toLowerCase().split(/\s+/).map((w) => w.replace(/^[@#]/, "")).filter(Boolean);
  const text = ([called, title, href]) => `${called} ${title} ${href.split("#")[1] ?? ""}`.toLowerCase();
  const found = words.length ? index.filter((row) => words.every((w) => text(row).includes(w))) : [];
  hits.replaceChildren(...found.slice(0, most).map(([called, title, href]) =>
    make("li", {}, make("a", { href: root + href, title: href.split("#")[1] ?? "" }, make("small", { textContent: called }), title))));
  if (found.length > most) hits.append(make("li", { className: "more", textContent: `and ${found.length - most} more` }));
  if (words.length && !found.length) hits.append(make("li", { textContent: "No claim, figure or chapter is named so." }));
};
field.addEventListener("input", find);
field.addEventListener("keydown", (event) => { if (event.key === "Enter") hits.querySelector("a")?.click(); });
