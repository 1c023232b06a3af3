// Creation of elements. Content of a dataset is always inserted as text, never as markup.

/** Returns a new element: make("a", {class: "row", href: "/", on: {click: …}}, "text", child) */
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

/** Returns a description list of [name, fact] pairs. Absent and empty facts are omitted. */
export function factList(pairs) {
  const present = pairs.filter(([, fact]) => !isAbsent(fact) && fact !== "");
  const items = present.map(([name, fact]) => make("div", {}, make("dt", {}, name), make("dd", {}, fact)));
  return make("dl", { class: "facts" }, items);
}

export function button(label, onClick) {
  return make("button", { type: "button", on: { click: onClick } }, label);
}
