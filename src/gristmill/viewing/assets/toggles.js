// How code is shown: token boundaries and long lines. Both are part of the address, and kept from one page to the next.

import { make } from "./dom.js";
import { withQuery } from "./address.js";

const shown = { tokens: "", wrap: "" };

/** Two buttons for the code, and what their keys do. */
export function codeToggles(code, query) {
  for (const name of Object.keys(shown)) shown[name] = query.get(name) ?? shown[name];
  const tokens = toggle("Token boundaries", "t", shown.tokens === "1", (isOn) => {
    code.classList.toggle("bounds", isOn);
    keep("tokens", isOn ? "1" : "");
  });
  const wrap = toggle("Wrap lines", "w", shown.wrap !== "0", (isOn) => {
    code.classList.toggle("wrapped", isOn);
    keep("wrap", isOn ? "" : "0");
  });
  return {
    element: make("p", { class: "buttons" }, tokens.button, wrap.button),
    keys: { t: tokens.switch, w: wrap.switch },
  };
}

function toggle(words, key, isOnAtFirst, apply) {
  const button = make("button", { type: "button", class: "toggle" }, words, " ", make("kbd", {}, key));
  let isOn = isOnAtFirst;
  const show = () => {
    button.setAttribute("aria-pressed", String(isOn));
    apply(isOn);
  };
  const flip = () => {
    isOn = !isOn;
    show();
  };
  button.addEventListener("click", flip);
  show();
  return { button, switch: flip };
}

function keep(name, value) {
  shown[name] = value;
  const { pathname, search } = window.location;
  const values = Object.fromEntries(new URLSearchParams(search));
  const address = withQuery(pathname, { ...values, [name]: value });
  if (address !== pathname + search) history.replaceState(history.state, "", address);
}
