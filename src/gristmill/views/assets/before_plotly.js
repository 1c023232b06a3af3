// Runs before plotly. The page's policy lets no script bring a style sheet or a style attribute with it. Plotly tries
// both: a sheet for maps, which are not drawn here, and attributes, which do as well as properties. So neither has to be
// refused aloud in the console.
"use strict";
(() => {
  const { setAttribute } = Element.prototype;
  const { appendChild } = Node.prototype;
  Element.prototype.setAttribute = function (name, value) {
    if (name === "style") {
      this.style.cssText = value;
    } else {
      setAttribute.call(this, name, value);
    }
  };
  Node.prototype.appendChild = function (node) {
    return node instanceof HTMLStyleElement ? node : appendChild.call(this, node);
  };
})();
