// Elements, made without any HTML text: what a client has named can only become text.

const SVG = "http://www.w3.org/2000/svg";

// A child is an element or a text. Nothing is ever parsed.
export function element(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

function filled(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

// Sets a text or an attribute only if it has changed, so that a screen reader and a selection are left in peace.
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export function setAttribute(node, name, value) {
  if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
}

export function setClass(node, name) {
  if (node.getAttribute("class") !== name) node.setAttribute("class", name);
}
