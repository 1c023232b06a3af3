// The filters of a list. A choice applies immediately. Typed text applies after a short pause.

import { make } from "./dom.js";
import { count, printable } from "./format.js";

const TYPING_PAUSE_MS = 300;

/** Returns a field with choices, which are pairs [value, text]. The value "" selects everything. */
export function selectField(name, label, choices) {
  const options = choices.map(([value, text]) => make("option", { value }, printable(text)));
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

/** Returns a form and a function that sets its fields. `onChange(values, isTyped)` gets the values of all fields. */
export function filterForm(fields, onChange) {
  const form = make("form", { class: "filters", "aria-label": "Filters" }, ...fields);
  const values = () => Object.fromEntries(new FormData(form));
  let timer = 0;
  const notify = (isTyped) => {
    clearTimeout(timer);
    onChange(values(), isTyped);
  };
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    notify(false);
  });
  form.addEventListener("input", (event) => {
    clearTimeout(timer);
    if (event.target instanceof HTMLSelectElement) notify(false);
    else timer = setTimeout(notify, TYPING_PAUSE_MS, true);
  });
  return { form, set: (query) => setFields(form, query) };
}

/** Sets the fields from a query, except the field in which the user is typing. */
function setFields(form, query) {
  for (const control of form.elements) {
    if (!control.name || (control === document.activeElement && control instanceof HTMLInputElement)) continue;
    const value = query.get(control.name) ?? "";
    const hasValue = !(control instanceof HTMLSelectElement) || [...control.options].some((one) => one.value === value);
    if (!hasValue) control.append(make("option", { value }, printable(value)));
    control.value = value;
  }
}

/** Wraps a form in an element that is collapsed on narrow screens. */
export function collapsible(form) {
  const details = make("details", { class: "fold" }, make("summary", {}, "Filters"), form);
  const isWide = window.matchMedia("(min-width: 50rem)");
  const fit = () => (details.open = isWide.matches);
  isWide.addEventListener("change", fit);
  fit();
  return details;
}

export function openAndFocus(details, selector) {
  details.open = true;
  details.querySelector(selector).focus();
}

export function splitChoices(dataset) {
  const splits = Object.entries(dataset.splits);
  return [["", "all"], ...splits.map(([split, windows]) => [split, `${split} (${count(windows)})`])];
}

export const nameChoices = (names) => [["", "all"], ...names.map((name) => [name, name])];
