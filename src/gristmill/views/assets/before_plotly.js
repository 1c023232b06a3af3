// Runs before plotly. The Content-Security-Policy of the page does not allow scripts to add style sheets or style
// attributes, but plotly adds many style attributes, and a style sheet for maps, which no chart needs. This script
// ignores added style sheets and sets style attributes as properties, so that the console has no policy errors.
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
