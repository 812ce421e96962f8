// A look at what a reference leads to, beside it: under the pointer, on focus, at the first tap. Escape closes it, and so does Back after a tap.
const REFERENCE = 'main a[href*="#"]:not(.number, .graph, .footnote-back)';
const base = new URL(`${root}./`, location.href).href; // the top of the book
const card = make("div", { id: "book-preview", role: "note", popover: "manual" });
document.getElementById("content").append(card);
const reference = (target) => {
  if (card.contains(target) || !card.showPopover) return null; // an old browser follows its links
  const link = target.closest?.(REFERENCE);
  return link instanceof HTMLAnchorElement ? link : null;
};

// blocks of another page come with a script of that page: a page opened from disk can read no file
const asked = new Map();
const blocks = (page) => {
  if (!asked.has(page)) {
    asked.set(page, new Promise((done) => {
      const script = make("script", { src: `${base}assets/previews/${page.replace(/html$/, "js")}` });
      script.onload = script.onerror = () => done(window.bookPreviews?.[decodeURI(page)] ?? {});
      document.head.append(script);
    }));
  }
  return asked.get(page);
};

// the HTML behind a link: the element itself, of a heading with the paragraph below it
const behind = async (link) => {
  const id = decodeURIComponent(link.hash.slice(1));
  const page = link.href.split("#")[0];
  if (page !== location.href.split("#")[0]) return (await blocks(page.slice(base.length)))[id];
  const found = document.getElementById(id);
  if (!found?.textContent.trim()) return "";
  let next = found;
  if (/^H\d$/.test(found.tagName)) {
    next = found.closest(".page-head") ?? found;
    do next = next.nextElementSibling; while (next && !/^(P|H\d)$/.test(next.tagName));
    return found.outerHTML + (next?.tagName === "P" ? next.outerHTML : "");
  }
  return found.outerHTML;
};

// a copy has identifiers of its own, no headings, and links that lead where the original's do
const fill = (html, link, tapped) => {
  card.innerHTML = html;
  for (const part of card.querySelectorAll(".copy, .enlarge, .label, .relations, .checks, .back, .footnote-back")) part.remove();
  for (const part of card.querySelectorAll("h1, h2, h3, h4")) part.replaceWith(make("p", { className: "heading" }, ...part.childNodes));
  for (const part of card.querySelectorAll("[id]")) part.id = `preview-${part.id}`;
  for (const attribute of [...card.querySelectorAll("svg *")].flatMap((part) => [...part.attributes])) {
    const named = attribute.name.endsWith("href") ? /^#/ : /(?<=url\("?)#/;
    if (named.test(attribute.value)) attribute.value = attribute.value.replace(named, "#preview-");
  }
  for (const [tag, key] of [["a", "href"], ["img", "src"]]) {
    for (const part of card.querySelectorAll(`${tag}[${key}]`)) part[key] = new URL(part.getAttribute(key), link.href).href;
  }
  for (const part of card.querySelectorAll("details.imports")) part.open = true;
  if (tapped) card.append(make("p", { className: "goto" }, make("a", { href: link.href, textContent: `Go to ${link.textContent}` })));
  card.ariaLabel = `Preview of ${link.textContent}`;
};

const place = (link) => {
  const lines = link.getClientRects();
  const [first, last] = [lines[0], lines[lines.length - 1]];
  const room = Math.max(first.top, innerHeight - last.bottom) - 16;
  card.style.maxHeight = `${Math.min(room, 0.6 * innerHeight)}px`;
  const fits = innerHeight - last.bottom - 16 >= card.offsetHeight;
  const top = fits || innerHeight - last.bottom >= first.top ? last.bottom + 6 : first.top - card.offsetHeight - 6;
  const width = document.documentElement.clientWidth;
  card.style.left = `${scrollX + Math.max(8, Math.min(last.left, width - card.offsetWidth - 8))}px`;
  card.style.top = `${scrollY + top}px`;
};

let shown = null; // the reference whose preview is open
let wanted = null; // the one that will be, after a moment
let how = ""; // what opened it: hover, focus or tap
let timer = 0;
const hide = () => {
  clearTimeout(timer);
  wanted = null;
  if (!shown) return;
  shown.removeAttribute("aria-details");
  shown = null;
  card.hidePopover();
  uncover(hide);
};
const show = async (link, by) => {
  wanted = link;
  const html = await behind(link);
  if (!html || wanted !== link || !link.getClientRects().length) return Boolean(html); // none, another, or gone meanwhile
  hide();
  [shown, how] = [link, by];
  if (by === "hover") link.removeAttribute("title"); // else the browser's own box covers the preview
  fill(html, link, by === "tap");
  card.showPopover({ source: link }); // in the tab order, it follows its link
  link.setAttribute("aria-details", card.id);
  place(link);
  for (const region of [card, ...card.querySelectorAll(".scroll")]) settle(region);
  if (by === "tap") cover(hide);
  return true;
};
const soon = (link, by) => { clearTimeout(timer); wanted = link; timer = setTimeout(show, 250, link, by); };

document.addEventListener("pointerover", ({ pointerType, target }) => {
  if (pointerType === "touch") return;
  const link = reference(target);
  if (link === shown && shown || card.contains(target)) { clearTimeout(timer); wanted = shown; }
  else if (link) soon(link, "hover");
  else if (wanted && how !== "focus") { clearTimeout(timer); wanted = null; timer = setTimeout(hide, 300); }
});
document.addEventListener("focusin", ({ target }) => {
  if (card.contains(target)) return;
  const link = reference(target);
  if (link?.matches(":focus-visible")) soon(link, "focus");
  else if (how === "focus") hide();
});
let touched = false;
document.addEventListener("pointerdown", ({ pointerType, target }) => {
  touched = pointerType === "touch";
  if (!card.contains(target) && reference(target) !== shown) hide();
});
document.addEventListener("click", (event) => {
  const link = reference(event.target);
  if (link && touched && link !== shown) {
    event.preventDefault();
    show(link, "tap").then((found) => { if (!found) location.assign(link.href); });
  } else if (event.target.closest("a")) hide();
});
document.addEventListener("keydown", ({ key }) => {
  touched = false;
  if (key !== "Escape" || !shown) return;
  if (card.contains(document.activeElement)) shown.focus();
  hide();
});
