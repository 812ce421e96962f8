// On a phone a figure is wider than the page. A tap shows it alone, along the long side of the screen.
const alone = make("dialog", { className: "alone", ariaLabel: "Figure" });
const close = make("button", { type: "button", textContent: "Close" });
document.body.append(alone);
let home = null; // the frame that the figure is taken from, and goes back to
const enlarge = (frame) => {
  home = frame;
  frame.style.minHeight = `${frame.offsetHeight}px`; // the text below stays where it is
  alone.replaceChildren(close, frame.querySelector("svg"));
  alone.showModal();
  cover(shut);
};
const shut = () => alone.close();
close.addEventListener("click", shut);
alone.addEventListener("close", () => {
  uncover(shut);
  home.append(alone.querySelector("svg"));
  home.style.minHeight = "";
});
for (const frame of document.querySelectorAll("figure > .plot-frame")) {
  const button = make("button", { type: "button", className: "enlarge", textContent: "Larger" });
  button.addEventListener("click", () => enlarge(frame));
  frame.addEventListener("click", () => { if (frame.matches(".more-after, .more-before")) enlarge(frame); });
  frame.after(button);
}
