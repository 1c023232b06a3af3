// The filters of a list: fields with labels. Choices apply at once, typed ones after a moment's rest.

import { make } from "./dom.js";
import { count, printable } from "./telling.js";

const REST_MS = 300;

/** [value, words] of a choice; "" stands for all. */
export function selectField(name, label, choices) {
  const options = choices.map(([value, words]) => make("option", { value }, printable(words)));
  return field(label, make("select", { id: `filter-${name}`, name }, options));
}

export function textField(name, label, hint) {
  const input = make("input", {
    id: `filter-${name}`, name, type: "search", autocomplete: "off", spellcheck: "false",
    "aria-describedby": `hint-${name}`,
  });
  return field(label, input, make("small", { id: `hint-${name}` }, hint));
}

function field(label, control, ...more) {
  return make("div", { class: "field" }, make("label", { for: control.id }, label), control, ...more);
}

/** A form of such fields. `changed(values, isTyped)` is told every field's value. */
export function filterForm(fields, changed) {
  const form = make("form", { class: "filters", "aria-label": "Filters" }, ...fields);
  const values = () => Object.fromEntries(new FormData(form));
  let timer = 0;
  const tell = (isTyped) => {
    clearTimeout(timer);
    changed(values(), isTyped);
  };
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    tell(false);
  });
  form.addEventListener("input", (event) => {
    clearTimeout(timer);
    if (event.target instanceof HTMLSelectElement) tell(false);
    else timer = setTimeout(tell, REST_MS, true);
  });
  return { form, set: (query) => setFields(form, query) };
}

/** As the address says; a field that is being typed in is left alone. */
function setFields(form, query) {
  for (const control of form.elements) {
    if (!control.name || (control === document.activeElement && control instanceof HTMLInputElement)) continue;
    const value = query.get(control.name) ?? "";
    const isKnown = !(control instanceof HTMLSelectElement) || [...control.options].some((one) => one.value === value);
    if (!isKnown) control.append(make("option", { value }, printable(value)));
    control.value = value;
  }
}

/** On a narrow screen a form is folded away, until it is asked for. */
export function folded(form) {
  const details = make("details", { class: "fold" }, make("summary", {}, "Filters"), form);
  const isWide = window.matchMedia("(min-width: 50rem)");
  const fit = () => (details.open = isWide.matches);
  isWide.addEventListener("change", fit);
  fit();
  return details;
}

export function focusFirst(fold, selector) {
  fold.open = true;
  fold.querySelector(selector).focus();
}

export function splitChoices(dataset) {
  const splits = Object.entries(dataset.splits);
  return [["", "all"], ...splits.map(([split, windows]) => [split, `${split} (${count(windows)})`])];
}

export const named = (names) => [["", "all"], ...names.map((name) => [name, name])];
