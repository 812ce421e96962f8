// Find what the book holds: names, labels, source items, the words and formulas of statements, captions and running
// text. The index comes as a script when the search first opens, so that all this works from a folder on disk.
{
  const opener = make("button", { type: "button", id: "search", textContent: "Search", title: "Search (key /)" });
  const field = make("input", { type: "search", ariaLabel: "Search the book", autocomplete: "off", spellcheck: false });
  field.placeholder = "A name, a number, words, \\Lambda";
  const closer = make("button", { type: "button", textContent: "Close" });
  const count = make("p", { className: "count", role: "status" });
  const hits = make("ol", { className: "hits" });
  const head = make("div", { className: "search-head" }, field, closer);
  const panel = make("dialog", { className: "search", ariaLabel: "Search" }, head, count, hits);
  (document.querySelector("#code") ?? document.querySelector("#theme")).before(opener);
  document.body.append(panel);
  const most = 30;
  let book = null; // until the index has come nothing is found, and nothing is said to be missing

  // folding: Latin case, accents and printers' signs do not matter, the case of a Greek letter does; all keep their places
  const letter = /[\p{L}\p{N}]/u;
  const printed = { "\u00a0": " ", "’": "'", "‘": "'", "“": '"', "”": '"', "–": "-", "—": "-", "−": "-", "‑": "-" };
  const folded = new Map();
  const foldOne = (c) => {
    if (!folded.has(c)) folded.set(c, printed[c] ?? (letter.test(c) ? c.normalize("NFKD")[0].toLowerCase() : c));
    return folded.get(c);
  };
  const fold = (text) => text.replace(/[A-Z\u00a0\u00c0-\u024f\u1e00-\u1eff\u2010-\u201d\u2100-\u214f\u2212]/g, foldOne);

  // a row of the index with what is searched in it, and the weight of a word found there: captions count twice the text
  const prepared = ([page, anchor, called, name, source, status, text]) => {
    const prose = !called || /^(Section|Chapter|Appendix)/.test(called);
    const fields = [[called, 6], [name, 6], [anchor, 5], [source, 5], [status, 4], [text, prose ? 1 : 2]];
    return {
      page, anchor, called, name, source, status, text,
      number: called.match(/\S*$/)[0].replace(/[()]/g, ""),
      appendix: window.bookIndex.pages[page][0].startsWith("Appendix"),
      fields: fields.map(([words, weight]) => [fold(words), weight]),
    };
  };
  const prepare = ({ pages, rows, signs, small, capital, long, rules, last, relations }) => {
    const pattern = ([from, to]) => [new RegExp(from, "g"), to];
    const map = (object) => new Map(Object.entries(object));
    const turned = (entries) => new Map(entries.map(([from, to]) => [to, from]));
    return {
      pages, signs, rows: rows.map(prepared),
      rules: rules.map(pattern), last: last.map(pattern), relations: new RegExp(relations, "g"),
      small: map(small), capital: map(capital), long: map(long), brief: turned(Object.entries(long)),
      spelled: turned([...Object.entries(small), ...Object.entries(capital)]),
    };
  };
  const load = () => {
    if (document.getElementById("index")) return;
    const script = make("script", { id: "index", src: `${root}assets/index.js` });
    script.addEventListener("load", () => {
      book = prepare(window.bookIndex);
      find();
    });
    document.head.append(script);
  };

  // what was typed: formulas are read by the rules the pages were read by, a phrase in quotes stays together
  const asText = (typed) => {
    let text = typed.replace(/\\([A-Za-z]+)/g, (whole, name) => book.signs[name] ?? whole);
    for (let before = ""; before !== text;) {
      before = text;
      for (const [from, to] of book.rules) text = text.replace(from, to);
    }
    for (const [from, to] of book.last) text = text.replace(from, to);
    return text.replace(/<=/g, "≤").replace(/>=/g, "≥").replace(/!=/g, "≠").replace(/²/g, "^2").replace(/³/g, "^3");
  };
  const wordsOf = (typed) => {
    const parts = [...fold(asText(typed)).matchAll(/"([^"]+)"?|[^\s"]+/g)];
    const words = parts.flatMap(([word, phrase]) => (phrase ? [phrase.trim()] : word.replace(book.relations, " $1 ").split(" ")));
    return words.map((word) => word.replace(/^[@#](?=.)/, "").replace(/(.)[.,;:!?]$/, "$1")).filter(Boolean);
  };
  // the ways in which a word may stand in the book: lambda as λ, λ as lambda, Prop. for Proposition
  const formsOf = (word) => [...new Set([
    word,
    word.replace(/[a-z]+/g, (name) => book.small.get(name) ?? name),
    word.replace(/[a-z]+/g, (name) => book.capital.get(name) ?? name),
    word.replace(/[^\x00-\x7f]/g, (sign) => book.spelled.get(sign) ?? sign),
    book.long.get(word) ?? word,
    book.brief.get(word) ?? word,
  ])];

  // how well a word fits a text: 3 as a whole word, 2 at a word's beginning, 1 inside one, 0 not at all; and where
  const place = (text, word) => {
    let best = [0, -1];
    for (let at = text.indexOf(word); at >= 0 && best[0] < 3; at = text.indexOf(word, at + 1)) {
      const opens = !at || !letter.test(text[at - 1]) || !letter.test(word[0]);
      const ends = at + word.length;
      const closes = ends === text.length || !letter.test(text[ends]) || !letter.test(word.at(-1));
      const fit = opens ? (closes ? 3 : 2) : 1;
      if (fit > best[0]) best = [fit, at];
    }
    return best;
  };
  const fitOf = (text, forms) => forms.reduce((best, form) => Math.max(best, place(text, form)[0]), 0);
  const bare = (text) => text.replace(/[.,;:]/g, "");
  const score = (row, typed, words) => {
    let total = 0;
    for (const forms of words) {
      let best = 0;
      for (const [text, weight] of row.fields) if (weight * 3 > best) best = Math.max(best, weight * fitOf(text, forms));
      if (!best) return 0;
      total += best;
    }
    const [called, name, anchor, source] = row.fields.map(([text]) => text);
    const whole = typed.join(" ");
    if ([called, anchor, row.number].includes(whole)) return total + 300;
    if (whole === name) return total + 200;
    if (typed.length > 1) {
      for (const [text, weight] of row.fields) if (text.includes(whole)) total += weight * 4;
      const item = typed.map((word) => book.brief.get(word) ?? word).join(" "); // such as "GLLM Prop. 7"
      total += 20 * place(bare(source), bare(item))[0];
    }
    return row.appendix ? total / 2 : total; // there the statements of the chapters are listed again
  };

  // a text with the words marked
  const marked = (text, forms) => {
    const parts = forms.map((form) => form.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).sort((a, b) => b.length - a.length);
    const pieces = [];
    let end = 0;
    for (const { 0: found, index } of fold(text).matchAll(new RegExp(parts.join("|"), "g"))) {
      pieces.push(text.slice(end, index), make("mark", { textContent: text.slice(index, index + found.length) }));
      end = index + found.length;
    }
    return [...pieces, text.slice(end)];
  };
  const snippet = ({ text }, words) => {
    const places = words.flat().map((form) => place(fold(text), form)).sort((a, b) => b[0] - a[0]);
    const at = Math.max(0, places[0][1]);
    const from = at < 70 ? 0 : Math.min(at, (text.indexOf(" ", at - 60) + 1) || at);
    const to = from + 170 >= text.length ? text.length : Math.max(at + 40, text.lastIndexOf(" ", from + 170));
    return [from ? "… " : "", ...marked(text.slice(from, to), words.flat()), to < text.length ? " …" : ""];
  };
  const hit = (row, words) => {
    const [word, title, target] = book.pages[row.page];
    const forms = words.flat();
    const called = make("span", { className: "called" }, ...marked(row.called, forms));
    const name = make("strong", {}, ...marked(row.name, forms));
    const lines = [make("a", { href: `${root}${target}${row.anchor && "#"}${row.anchor}` }, called, " ", name)];
    const chapter = row.anchor ? `${word} ${title}`.trim() : "";
    const origin = [row.source, row.status].filter(Boolean).join(" · ");
    if (chapter) lines.push(make("p", { className: "where" }, chapter, origin && " · ", ...marked(origin, forms)));
    if (row.text) lines.push(make("p", { className: "snippet" }, ...snippet(row, words)));
    return make("li", {}, ...lines);
  };
  const nothing = (words) => {
    const holds = (row, forms) => row.fields.some(([text]) => forms.some((form) => text.includes(form)));
    const missing = words.filter((forms) => !book.rows.some((row) => holds(row, forms)));
    if (!missing.length) return "Nothing holds all these words together. Fewer words find more.";
    return `Nothing in the book holds ${missing.map(([word]) => `“${word}”`).join(" or ")}.`;
  };
  const find = () => {
    if (!book) return;
    const typed = wordsOf(field.value);
    const words = typed.map(formsOf);
    const scored = words.length ? book.rows.map((row) => [score(row, typed, words), row]) : [];
    const found = scored.filter(([points]) => points).sort((a, b) => b[0] - a[0]);
    hits.replaceChildren(...found.slice(0, most).map(([, row]) => hit(row, words)));
    const places = `${found.length} ${found.length === 1 ? "place" : "places"}`;
    const told = found.length > most ? `${places}, the first ${most} are shown` : places;
    count.textContent = !words.length ? "" : found.length ? told : nothing(words);
  };

  const shut = () => panel.close();
  const open = () => {
    panel.showModal();
    if (matchMedia("(hover: none)").matches) cover(shut);
    field.select();
    load();
    find();
  };
  opener.addEventListener("click", open);
  closer.addEventListener("click", shut);
  panel.addEventListener("close", () => uncover(shut));
  field.addEventListener("input", find);
  panel.addEventListener("click", (event) => { if (event.target === panel || event.target.closest("a")) shut(); });
  document.addEventListener("keydown", (event) => {
    const elsewhere = event.target.closest?.("input, textarea, select, [contenteditable]");
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || elsewhere || panel.open) return;
    event.preventDefault();
    open();
  });
  panel.addEventListener("keydown", (event) => {
    const links = [field, ...hits.querySelectorAll("a")];
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && links.includes(document.activeElement)) {
      event.preventDefault();
      links[Math.min(Math.max(links.indexOf(document.activeElement) + step, 0), links.length - 1)].focus();
    } else if (event.key === "Enter" && event.target === field) links[1]?.click();
    else if (event.key === "Escape" && field.value) {
      event.preventDefault(); // the first press clears, the second closes
      field.value = "";
      find();
      field.focus();
    }
  });
}
