// Runs before plotly. The Content-Security-Policy of the page forbids style sheets and style attributes from scripts.
// Plotly tries to add both: a style sheet for maps, which are not used here, and attributes. This script ignores the
// style sheets and sets the attributes as properties, so that the console has no policy errors.
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
