// Draw one statement with all it rests on, or with what rests on it, layer by layer. The list below the drawing says the
// same in words; from its links come the numbers of the statements, which only the rendered page knows.
document.addEventListener("DOMContentLoaded", () => {
  const most = 30; // of what rests on a statement, the nearest are drawn and the others listed
  const gap = 22; // between statements side by side, in CSS pixels
  const centring = 0.7; // how near a row's places stay to those of its neighbours, and not to the middle
  const { signs, first, claims } = JSON.parse(document.getElementById("claim-graph-data").textContent);
  const place = document.getElementById("claim-graph");
  const make = (name, properties, ...children) => {
    const element = Object.assign(document.createElement(name), properties);
    element.append(...children);
    return element;
  };

  // the statements, each with what it uses and what uses it
  const links = [...document.querySelectorAll("main a[href*='#']")].reverse(); // of several to one place, the first counts
  const numbers = new Map(links.map((a) => [a.hash.slice(1), a.textContent.trim().replace("\u00a0", " ")]));
  const nodes = claims.map(([id, name, word, status, page]) => (
    { id, name, word, status, href: `${page}#${id}`, number: numbers.get(id) ?? id, users: [] }));
  const byId = new Map(nodes.map((node) => [node.id, node]));
  nodes.forEach((node, n) => { node.uses = claims[n][5].map((used) => nodes[used]); });
  for (const node of nodes) for (const used of node.uses) used.users.push(node);
  const titled = ({ number, name }) => `${number} ${name}`;

  // the controls
  const field = make("input", { type: "text", autocomplete: "off", spellcheck: false });
  field.setAttribute("list", "graph-statements");
  const list = make("datalist", { id: "graph-statements" }, ...nodes.map((node) => make("option", { value: titled(node) })));
  const way = (value, words) => make("label", {}, make("input", { type: "radio", name: "graph-way", value }), ` ${words}`);
  const told = make("p", { className: "graph-told", role: "status" });
  const frame = make("div", { className: "graph-frame", role: "region", tabIndex: 0 });
  const rest = make("details", { className: "graph-rest" });
  const direction = make("span", {});
  const ways = make("fieldset", {}, way("on", "what it rests on"), way("for", "what rests on it"));
  ways.ariaLabel = "Show";
  const statement = make("label", { className: "graph-statement" }, "Statement, by number, name or label", field);
  const seen = Object.entries(signs).filter(([word]) => nodes.some((node) => node.word === word));
  const key = seen.flatMap(([word, sign]) => [make("span", { textContent: `${sign} ${word}` }), " "]);
  place.append(make("div", { className: "graph-choice" }, statement, list, ways), told, frame, rest,
    make("p", { className: "graph-key" }, direction, " A number leads to the statement, a name draws the picture for it. ", ...key));

  // all that can be reached from a statement, by the number of steps
  const reached = (root, next) => {
    const steps = new Map([[root, 0]]);
    for (const [node, step] of steps) for (const other of next(node)) if (!steps.has(other)) steps.set(other, step + 1);
    return steps;
  };
  const nearest = (steps) => {
    const all = [...steps.keys()];
    if (all.length <= most) return all;
    const within = (step) => all.filter((node) => steps.get(node) <= step).length;
    const reach = Math.max(1, ...[...steps.values()].filter((step) => within(step) <= most));
    return all.filter((node) => steps.get(node) <= reach).slice(0, most);
  };

  // layers: each statement below all that lead to it; a wide layer takes several rows; a line that passes a row has a
  // place in it, shared by all lines of the statement that is used
  const layered = (drawn, next, before, across) => {
    const inside = new Set(drawn);
    const depths = new Map();
    const depth = (node) => {
      const above = before(node).filter((other) => inside.has(other));
      if (!depths.has(node)) depths.set(node, Math.max(-1, ...above.map(depth)) + 1);
      return depths.get(node);
    };
    const layers = [];
    for (const node of drawn) (layers[depth(node)] ??= []).push({ node, links: [] });
    const rows = layers.flatMap((layer) => {
      const number = Math.ceil(layer.length / across);
      const start = (k) => Math.round((k * layer.length) / number);
      return Array.from({ length: number }, (_, k) => layer.slice(start(k), start(k + 1)));
    });
    const units = new Map();
    rows.forEach((row, r) => row.forEach((unit) => { unit.row = r; units.set(unit.node, unit); }));
    const passing = new Map();
    const edges = drawn.flatMap((node) => next(node).filter((other) => inside.has(other)).map((other) => {
      const [from, to] = [units.get(node), units.get(other)];
      const used = node.uses.includes(other) ? other : node;
      const path = [from];
      for (let r = from.row + 1; r < to.row; r += 1) {
        const key = `${used.id} ${r}`;
        if (!passing.has(key)) { passing.set(key, { row: r, links: [] }); rows[r].push(passing.get(key)); }
        path.push(passing.get(key));
      }
      path.push(to);
      path.slice(1).forEach((unit, k) => { unit.links.push(path[k]); path[k].links.push(unit); });
      return { path, ends: [node, other] };
    }));
    return { rows, edges };
  };

  // places from left to right: neighbours near each other, the order kept, room between
  const arrange = (rows, width) => {
    const room = (unit) => (unit.node ? (width + gap) / 2 : 6);
    const mean = (unit, up) => {
      const near = unit.links.filter((other) => up === undefined || (up ? other.row < unit.row : other.row > unit.row));
      return (near.length ? near.reduce((sum, other) => sum + other.x, 0) / near.length : unit.x) * centring;
    };
    const settle = (row, wanted) => {
      let edge = -Infinity;
      const apart = (k) => (row[k - 1] && row[k] ? room(row[k - 1]) + room(row[k]) : 0);
      const left = row.map((_, k) => (edge = Math.max(wanted[k], edge + apart(k))));
      edge = Infinity;
      for (let k = row.length - 1; k >= 0; k -= 1) {
        edge = Math.min(wanted[k], edge - apart(k + 1));
        row[k].x = (left[k] + edge) / 2; // of two orders with room enough, the middle
      }
    };
    for (const row of rows) settle(row, row.map(() => 0));
    for (let sweep = 0; sweep < 12; sweep += 1) {
      const up = sweep % 2 === 0;
      for (const row of up ? rows : [...rows].reverse()) {
        const wanted = new Map(row.map((unit) => [unit, mean(unit, up)]));
        row.sort((a, b) => wanted.get(a) - wanted.get(b));
        settle(row, row.map((unit) => wanted.get(unit)));
      }
    }
    for (let sweep = 0; sweep < 6; sweep += 1) for (const row of rows) settle(row, row.map((unit) => mean(unit)));
    const all = rows.flat();
    const start = Math.min(...all.map((unit) => unit.x - room(unit)));
    for (const unit of all) unit.x -= start;
    return Math.max(...all.map((unit) => unit.x + room(unit)));
  };

  const box = (node, chosen) => make("li", { className: `graph-node ${node.word} ${chosen ? "chosen" : ""}` },
    make("a", { href: node.href, textContent: node.number }),
    make("button", { type: "button", textContent: node.name, title: "Draw the picture for this statement", onclick: () => show(node, chosenWay(), true) }),
    make("span", { className: "graph-status", textContent: `${signs[node.word]} ${node.status}` }));

  const draw = (root, drawn, next, before) => {
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    svg.setAttribute("aria-hidden", "true");
    const boxes = make("ol", {});
    const drawing = make("div", { className: "graph-drawing" }, svg, boxes);
    frame.replaceChildren(drawing);
    boxes.append(box(root, true));
    const width = boxes.firstChild.offsetWidth;
    const across = Math.max(2, Math.floor((frame.clientWidth - 8) / (width + gap)));
    const { rows, edges } = layered(drawn, next, before, across);
    boxes.replaceChildren();
    for (const unit of rows.flat().filter(({ node }) => node)) boxes.append(unit.box = box(unit.node, unit.node === root));
    const whole = arrange(rows, width);
    let top = 0;
    for (const row of rows) {
      const height = Math.max(0, ...row.map((unit) => unit.box?.offsetHeight ?? 0));
      for (const unit of row) {
        Object.assign(unit, { top, bottom: top + (unit.box?.offsetHeight ?? height) });
        if (unit.box) Object.assign(unit.box.style, { left: `${unit.x - width / 2}px`, top: `${top}px` });
      }
      top += height + 46;
    }
    Object.assign(drawing.style, { width: `${whole}px`, height: `${top - 46}px` });
    svg.setAttribute("width", whole);
    svg.setAttribute("height", top - 46);
    for (const { path, ends } of edges) {
      const line = document.createElementNS("http://www.w3.org/2000/svg", "path");
      line.setAttribute("d", path.slice(1).reduce((d, unit, k) => {
        const middle = (path[k].bottom + unit.top) / 2;
        return `${d} C${path[k].x} ${middle} ${unit.x} ${middle} ${unit.x} ${unit.top}${unit.node ? "" : ` V${unit.bottom}`}`;
      }, `M${path[0].x} ${path[0].bottom}`));
      svg.append(line);
      for (const unit of rows.flat().filter(({ node }) => ends.includes(node))) {
        for (const [event, lit] of [["pointerenter", true], ["pointerleave", false], ["focusin", true], ["focusout", false]]) {
          unit.box.addEventListener(event, () => line.classList.toggle("lit", lit));
        }
      }
    }
    const middle = rows.flat().find(({ node }) => node === root);
    frame.scrollLeft = middle.x - frame.clientWidth / 2;
  };

  const count = (number) => (number === 1 ? "1 statement" : `${number} statements`);
  const chosenWay = () => place.querySelector("input[name=graph-way]:checked")?.value ?? "on";
  const show = (root, way, byReader = false) => {
    const uses = ({ uses }) => uses;
    const users = ({ users }) => users;
    const [next, before] = way === "on" ? [uses, users] : [users, uses];
    const steps = reached(root, next);
    const drawn = nearest(steps);
    const left = [...steps.keys()].filter((node) => !drawn.includes(node));
    field.value = titled(root);
    place.querySelector(`input[name=graph-way][value=${way}]`).checked = true;
    const direct = next(root).length;
    const number = steps.size - 1;
    const some = direct === number ? "" : `, ${direct} of them directly`;
    const rests = number ? `It rests on ${count(number)}${some}.` : "It uses no other statement.";
    const carries = number ? `${count(number)} rest${number === 1 ? "s" : ""} on it${some}.` : "No other statement uses it.";
    const part = left.length ? ` The nearest ${drawn.length - 1} are drawn.` : "";
    told.textContent = `${titled(root)}: ${root.status}. ${way === "on" ? rests : carries}${part}`;
    frame.ariaLabel = way === "on" ? `What ${root.number} rests on` : `What rests on ${root.number}`;
    draw(root, drawn, next, before);
    direction.textContent = way === "on" ? "A line leads down to what is used." : "A line leads down to what uses it.";
    rest.hidden = !left.length;
    const others = left.map((node) => make("a", { href: node.href, title: node.name, textContent: node.number }));
    rest.replaceChildren(make("summary", { textContent: `${left.length} more` }), ...others.flatMap((link) => [link, " "]));
    if (byReader) {
      history.pushState(null, "", `#${way}-${root.id}`);
      frame.querySelector(".chosen button").focus({ preventScroll: true });
    }
  };

  // the statement that was typed or picked: by its number and name, its number, its label, or words of its name
  field.addEventListener("change", () => {
    const typed = field.value.trim().toLowerCase();
    const fits = [(node) => titled(node).toLowerCase() === typed, (node) => node.id === typed.replace(/^[@#]/, ""),
      (node) => node.number.toLowerCase() === typed, (node) => titled(node).toLowerCase().includes(typed)];
    const node = typed && fits.map((fit) => nodes.find(fit)).find(Boolean);
    if (node) show(node, chosenWay(), true);
    else told.textContent = `No statement that rests on others, or on which others rest, is called “${field.value.trim()}”.`;
  });
  field.addEventListener("focus", () => field.select());
  ways.addEventListener("change", () => {
    const [, root] = asked() ?? [];
    show(root ?? byId.get(first), chosenWay());
    history.pushState(null, "", `#${chosenWay()}-${(root ?? byId.get(first)).id}`);
  });

  // the address says what is drawn: #on-prp-name, or #for-prp-name for the other way
  const asked = () => {
    const found = decodeURIComponent(location.hash).match(/^#(on|for)-(.+)$/);
    return found && byId.has(found[2]) ? [found[1], byId.get(found[2])] : null;
  };
  const follow = () => {
    const [way, root] = asked() ?? ["on", byId.get(first)];
    if (!root) return;
    show(root, way);
    if (asked()) place.scrollIntoView();
  };
  addEventListener("hashchange", follow);
  addEventListener("load", () => { if (asked()) place.scrollIntoView(); });
  follow();
});
