// Elements are made one way only: what comes from a dataset is text in them, never markup.

/** make("a", {class: "row", href: "/", on: {click: …}}, "text", another) */
export function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "on") listen(element, value);
    else if (!isAbsent(value) && value !== false) element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => !isAbsent(child)));
  return element;
}

const isAbsent = (value) => value === null || value === undefined;

function listen(element, handlers) {
  for (const [event, handler] of Object.entries(handlers)) element.addEventListener(event, handler);
}

/** What is not absent, as pairs of a description list. */
export function factList(pairs) {
  const told = pairs.filter(([, fact]) => !isAbsent(fact) && fact !== "");
  const items = told.map(([name, fact]) => make("div", {}, make("dt", {}, name), make("dd", {}, fact)));
  return make("dl", { class: "facts" }, items);
}

export function button(words, pressed) {
  return make("button", { type: "button", on: { click: pressed } }, words);
}
