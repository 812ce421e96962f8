// What is wider than its line scrolls by itself, and says so. First of a page's scripts; Quarto's pages have it too.
const make = (name, properties, ...children) => {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...children);
  return element;
};

// where a region is cut off, it fades
const fade = (region) => {
  const left = region.scrollWidth - region.clientWidth - region.scrollLeft;
  region.classList.toggle("more-after", left > 1);
  region.classList.toggle("more-before", region.scrollLeft > 1);
};

// a container that does not scroll need not take the keyboard's focus
const settle = (region) => {
  const scrolls = region.scrollWidth > region.clientWidth + 1 || region.scrollHeight > region.clientHeight + 1;
  if (scrolls) region.tabIndex = 0;
  else region.removeAttribute("tabindex");
  fade(region);
};
const regions = [];
const watch = (region) => {
  regions.push(region);
  region.addEventListener("scroll", () => fade(region), { passive: true });
};
document.querySelectorAll(".scroll").forEach(watch);

// a formula in running text that is wider than its line scrolls like a displayed one
const room = (block) => {
  const { paddingLeft, paddingRight } = getComputedStyle(block);
  return block.clientWidth - parseFloat(paddingLeft) - parseFloat(paddingRight);
};
const fold = () => {
  for (const formula of document.querySelectorAll('main math[display="inline"]')) {
    const width = (formula.closest(".kept") ?? formula).getBoundingClientRect().width;
    if (width < 200 || formula.closest(".scroll")) continue; // every line has as much room
    if (width <= room(formula.closest("p, li, dt, dd, td, th, figcaption, summary, h1, h2, h3, h4, div"))) continue;
    const region = make("span", { className: "scroll wide", role: "group", ariaLabel: "Formula" });
    formula.replaceWith(region);
    region.append(formula);
    watch(region);
  }
};
const measure = () => { fold(); regions.forEach(settle); };
new ResizeObserver(measure).observe(document.body);
addEventListener("load", measure);
