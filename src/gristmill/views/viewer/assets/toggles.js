// How code is shown: token boundaries and long lines. Both are part of the address, and kept from one page to the next.

import { make } from "./dom.js";
import { withQuery } from "./address.js";

/** What was chosen, as the address has it: "1", "0", or "" where nothing was. */
const chosen = { tokens: "", wrap: "" };

/** Two buttons for the code, and what their keys do. A window shows its tokens unless told otherwise, a file does not. */
export function codeToggles(code, query, { hasBounds }) {
  for (const name of Object.keys(chosen)) chosen[name] = query.get(name) ?? chosen[name];
  const tokens = toggle("tokens", "Token boundaries", "t", hasBounds, (isOn) => code.classList.toggle("bounds", isOn));
  const wrap = toggle("wrap", "Wrap lines", "w", true, (isOn) => code.classList.toggle("wrapped", isOn));
  return {
    element: make("p", { class: "buttons" }, tokens.button, wrap.button),
    keys: { t: tokens.flip, w: wrap.flip },
  };
}

function toggle(name, words, key, byDefault, apply) {
  const button = make("button", { type: "button", class: "toggle" }, words, " ", make("kbd", {}, key));
  let isOn = chosen[name] === "" ? byDefault : chosen[name] === "1";
  const show = () => {
    button.setAttribute("aria-pressed", String(isOn));
    apply(isOn);
    tellAddress(name);
  };
  const flip = () => {
    isOn = !isOn;
    chosen[name] = isOn ? "1" : "0";
    show();
  };
  button.addEventListener("click", flip);
  show();
  return { button, flip };
}

function tellAddress(name) {
  const { pathname, search } = window.location;
  const values = Object.fromEntries(new URLSearchParams(search));
  const address = withQuery(pathname, { ...values, [name]: chosen[name] });
  if (address !== pathname + search) history.replaceState(history.state, "", address);
}
