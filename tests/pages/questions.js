// What the tests ask a page. Each question is answered by a list of complaints; a good page answers with none.
window.questions = (() => {
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const shown = (e) => e.checkVisibility({ visibilityProperty: true, opacityProperty: true });
  const called = (e) => {
    const words = (e.ariaLabel ?? e.textContent ?? "").trim().replace(/\s+/g, " ").slice(0, 40);
    const kind = e.localName + (e.id ? `#${e.id}` : "") + [...e.classList].map((name) => `.${name}`).join("");
    const place = e.parentElement?.closest("[id]")?.id ?? "";
    return `${kind} "${words}"${place && ` in #${place}`}`;
  };

  // colours
  const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const read = new Map();
  const rgba = (css) => {
    if (!read.has(css)) {
      canvas.clearRect(0, 0, 1, 1);
      canvas.fillStyle = css;
      canvas.fillRect(0, 0, 1, 1);
      const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
      read.set(css, [r, g, b, a / 255]);
    }
    return read.get(css);
  };
  const over = ([r, g, b, a], below) => [r, g, b].map((c, k) => a * c + (1 - a) * below[k]);
  const luminance = (colour) => {
    const [r, g, b] = colour.map((c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ratio = (one, other) => {
    const [low, high] = [luminance(one), luminance(other)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };
  const behind = (e) => {
    const layers = [];
    for (let box = e; box; box = box.parentElement) {
      const layer = rgba(getComputedStyle(box).backgroundColor);
      if (layer[3] > 0) layers.unshift(layer);
      if (layer[3] === 1) break;
    }
    return layers.reduce((below, layer) => over(layer, below), [255, 255, 255]);
  };
  const faded = ([r, g, b, a], by) => [r, g, b, a * by];
  const opacity = (e) => (e ? Number(getComputedStyle(e).opacity) * opacity(e.parentElement) : 1);
  const written = (e) => [...e.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
  const texts = () => all("body *").filter((e) => written(e) && !e.closest("svg, annotation, script, style, noscript, .skip") && shown(e));

  // bitmaps in drawings, read before they are asked for a pixel
  const bitmaps = new Map();
  const readBitmaps = () => Promise.all(all("svg image").map(async (image) => {
    const picture = new Image();
    picture.src = image.href.baseVal;
    await picture.decode();
    const { naturalWidth: width, naturalHeight: height } = picture;
    const sheet = new OffscreenCanvas(width, height).getContext("2d");
    sheet.drawImage(picture, 0, 0);
    bitmaps.set(image, sheet.getImageData(0, 0, width, height));
  }));
  const pixel = (image, { x, y }) => {
    const { data, width, height } = bitmaps.get(image);
    const [left, top, wide, high] = ["x", "y", "width", "height"].map((name) => image[name].baseVal.value);
    const column = Math.min(width - 1, Math.max(0, Math.floor(((x - left) / wide) * width)));
    const row = Math.min(height - 1, Math.max(0, Math.floor(((y - top) / high) * height)));
    const [r, g, b, a] = data.slice(4 * (row * width + column), 4 * (row * width + column) + 4);
    return [r, g, b, a / 255];
  };

  // the shapes of a drawing that lie behind a point, lowest first, as one colour
  const drawnBehind = (drawing, text, point) => {
    let below = behind(drawing);
    for (const shape of all("path, rect, circle, ellipse, polygon, image", drawing)) {
      if (!(shape.compareDocumentPosition(text) & Node.DOCUMENT_POSITION_FOLLOWING) || shape.closest("defs, clipPath")) continue;
      const style = getComputedStyle(shape);
      if (style.fill === "none") continue;
      const box = shape.getBoundingClientRect();
      if (point.x < box.left || point.x > box.right || point.y < box.top || point.y > box.bottom) continue;
      const place = point.matrixTransform(shape.getScreenCTM().inverse());
      if (shape.localName === "image") {
        below = over(faded(pixel(shape, place), opacity(shape)), below);
        continue;
      }
      if (!shape.isPointInFill(place)) continue;
      below = over(faded(rgba(style.fill), Number(style.fillOpacity) * opacity(shape)), below);
    }
    return below;
  };
  const drawnTexts = () => all("svg text").filter((text) => text.textContent.trim() && shown(text)).map((text) => {
    const drawing = text.closest("svg");
    const style = getComputedStyle(text);
    const count = text.getNumberOfChars();
    const worst = Math.min(...[0, count >> 1, count - 1].map((k) => {
      const letter = text.getExtentOfChar(k);
      const middle = new DOMPoint(letter.x + letter.width / 2, letter.y + letter.height / 2).matrixTransform(text.getScreenCTM());
      const below = drawnBehind(drawing, text, middle);
      return ratio(over(faded(rgba(style.fill), Number(style.fillOpacity) * opacity(text)), below), below);
    }));
    return [text, worst];
  });

  const poor = (measured) => measured.filter(([, value]) => !(value >= 4.5)).map(([e, value]) => `${value.toFixed(2)} ${called(e)}`);

  const focusable = "a[href], button, input, select, textarea, summary, [tabindex]";
  const unchosen = (e) => e.type === "radio" && !e.checked && all('[type="radio"]:checked').some((other) => other.name === e.name);
  const tabStops = () => all(focusable).filter((e) =>
    e.tabIndex >= 0 && !e.disabled && !unchosen(e) && e.checkVisibility({ visibilityProperty: true }));
  const scrolls = (e) => /auto|scroll/.test(getComputedStyle(e).overflowX + getComputedStyle(e).overflowY)
    && (e.scrollWidth > e.clientWidth + 1 || e.scrollHeight > e.clientHeight + 1);

  return {
    // every picture, figure, table and formula has a size, and formulas are set as mathematics
    laidOut: () => all("img, svg, figure, table, math").filter(shown).filter((e) => {
      const { width, height } = e.getBoundingClientRect();
      const broken = e.localName === "img" && !e.naturalWidth;
      const flat = e.localName === "math" && !getComputedStyle(e).display.includes("math");
      return width < 1 || height < 1 || broken || flat;
    }).map(called),

    // WCAG AA: 4.5 to 1 for every text; large letters are not excused
    contrast: () => poor(texts().map((e) => {
      const below = behind(e);
      return [e, ratio(over(faded(rgba(getComputedStyle(e).color), opacity(e)), below), below)];
    })),

    // the same of the texts in drawings, against the shapes they stand on
    drawn: async () => { await readBitmaps(); return poor(drawnTexts()); },

    // nothing lies beyond the page but in a container that scrolls, and nothing is cut off
    width: () => {
      const wide = document.documentElement.scrollWidth;
      const complaints = wide > innerWidth ? [`the page is ${wide} wide`] : [];
      const inside = (e) => e.parentElement.closest("svg, math") || e.closest(".skip, annotation");
      const held = (e) => { for (let box = e.parentElement; box; box = box.parentElement) if (scrolls(box)) return true; return false; };
      for (const e of all("body *")) {
        if (!shown(e) || inside(e)) continue;
        const { left, right, width } = e.getBoundingClientRect();
        if (width && (right > innerWidth + 1 || left < -1) && !held(e)) complaints.push(`beyond the page: ${called(e)}`);
        const clips = /hidden|clip/.test(getComputedStyle(e).overflowX) && !e.matches("main, body, input"); // a field follows its cursor
        if (clips && e.clientWidth && e.scrollWidth > e.clientWidth + 1) complaints.push(`cut off: ${called(e)}`);
      }
      return complaints;
    },

    // what scrolls takes the focus and has a name, or holds what takes the focus
    scrolling: () => all("body *").filter((e) => shown(e) && scrolls(e)).filter((e) =>
      e.tabIndex < 0 ? !all(focusable, e).some((inner) => inner.tabIndex >= 0) : !(e.ariaLabel || e.getAttribute("aria-labelledby")),
    ).map(called),

    // one title, no level skipped, landmarks that can be told apart, a language and a title
    outline: () => {
      const complaints = [];
      const heads = all("h1, h2, h3, h4, h5, h6");
      if (all("h1").length !== 1) complaints.push(`${all("h1").length} titles`);
      heads.forEach((head, k) => {
        if (!head.textContent.trim()) complaints.push(`an empty heading: ${called(head)}`);
        if (k && head.localName[1] - heads[k - 1].localName[1] > 1) complaints.push(`a level is skipped: ${called(head)}`);
      });
      if (all("main").length !== 1) complaints.push(`${all("main").length} main parts`);
      const names = all("nav").map((nav) => nav.ariaLabel ?? "");
      if (names.includes("") || new Set(names).size < names.length) complaints.push(`navigations called ${names.join(", ")}`);
      if (!/^en/.test(document.documentElement.lang)) complaints.push(`the language is ${document.documentElement.lang}`);
      if (!document.title.trim()) complaints.push("no title");
      return complaints;
    },

    // whatever can be clicked takes the keyboard's focus, in the order of the page, and shows it
    focus: () => {
      const complaints = all("[tabindex]").filter((e) => e.tabIndex > 0).map((e) => `out of order: ${called(e)}`);
      for (const e of all("body *")) {
        if (getComputedStyle(e).cursor === "pointer" && shown(e) && !e.closest(focusable) && !e.closest("label")) complaints.push(`for the mouse alone: ${called(e)}`);
      }
      for (const e of tabStops()) {
        e.focus({ preventScroll: true });
        const { outlineStyle, outlineWidth } = getComputedStyle(e);
        if (document.activeElement !== e) complaints.push(`takes no focus: ${called(e)}`);
        else if (outlineStyle === "none" || parseFloat(outlineWidth) < 1) complaints.push(`shows no focus: ${called(e)}`);
      }
      document.activeElement.blur();
      return complaints;
    },

    // what the keyboard should visit, in order; and from now on, what it does visit and whether that is in sight
    stops: () => {
      const stops = tabStops();
      window.visited = [];
      document.addEventListener("focusin", ({ target }) => {
        if (target.closest("#book-preview")) return; // it opens beside a reference on which the focus rests
        const { top, bottom, left, right } = target.getBoundingClientRect();
        const seen = bottom > 0 && top < innerHeight && right > 0 && left < innerWidth;
        window.visited.push(stops.includes(target) && seen ? stops.indexOf(target) : `${seen ? "" : "out of sight: "}${called(target)}`);
      });
      return stops.map(called);
    },

    // show what is folded
    unfold: () => { all("details").forEach((e) => { e.open = true; }); return []; },

    // Leave axe some of each. It has no rule for what is inside mathematics or a named drawing and takes minutes to
    // look; a line of code is built like those above it, a row of a table like the first.
    thin: () => {
      all('svg[role="img"]').forEach((e) => e.replaceChildren());
      all("math").forEach((e) => { if (e.closest("th")) e.textContent = "x"; else e.replaceWith(e.textContent); });
      all("pre").slice(4).forEach((e) => { e.textContent = e.textContent; });
      all("tbody").forEach((e) => [...e.rows].slice(4).forEach((row) => row.remove()));
      return [];
    },

    // Mark a text for each pair of colours and size that is not known yet, and return what is new: axe judges these.
    mark: (known) => {
      const seen = new Set(known);
      all("[data-judged]").forEach((e) => e.removeAttribute("data-judged"));
      for (const e of texts()) {
        const { color, fontSize, fontWeight } = getComputedStyle(e);
        const key = [color, behind(e), fontSize, fontWeight, opacity(e), e.localName].join(" ");
        if (!seen.has(key)) e.dataset.judged = "";
        seen.add(key);
      }
      return [...seen].slice(known.length);
    },
  };
})();
