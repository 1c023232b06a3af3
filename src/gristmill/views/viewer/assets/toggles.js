// Buttons for token boundaries and line wrapping. Their states are in the address and carry over to the next page.

import { make } from "./dom.js";
import { withQuery } from "./address.js";

/** The state of each toggle, as in the address: "1", "0", or "" for the default. */
const states = { tokens: "", wrap: "" };

/** Returns the buttons and their keys. `hasBounds` is the default for token boundaries: on for rows, off for files. */
export function codeToggles(code, query, { hasBounds }) {
  for (const name of Object.keys(states)) states[name] = query.get(name) ?? states[name];
  const tokens = toggle("tokens", "Token boundaries", "t", hasBounds, (isOn) => code.classList.toggle("bounds", isOn));
  const wrap = toggle("wrap", "Wrap lines", "w", true, (isOn) => code.classList.toggle("wrapped", isOn));
  return {
    element: make("p", { class: "buttons" }, tokens.button, wrap.button),
    keys: { t: tokens.flip, w: wrap.flip },
  };
}

function toggle(name, label, key, isOnByDefault, apply) {
  const button = make("button", { type: "button", class: "toggle" }, label, " ", make("kbd", {}, key));
  let isOn = states[name] === "" ? isOnByDefault : states[name] === "1";
  const update = () => {
    button.setAttribute("aria-pressed", String(isOn));
    apply(isOn);
    updateAddress(name);
  };
  const flip = () => {
    isOn = !isOn;
    states[name] = isOn ? "1" : "0";
    update();
  };
  button.addEventListener("click", flip);
  update();
  return { button, flip };
}

function updateAddress(name) {
  const { pathname, search } = window.location;
  const values = Object.fromEntries(new URLSearchParams(search));
  const address = withQuery(pathname, { ...values, [name]: states[name] });
  if (address !== pathname + search) history.replaceState(history.state, "", address);
}
