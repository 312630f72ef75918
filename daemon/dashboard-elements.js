// SPDX-License-Identifier: BSD-2-Clause
/*
 * What dashboard.js builds the page of: elements, numbers as text, blocks. No state. Texts become text nodes and attributes'
 * values, never HTML.
 */
const SVG = "http://www.w3.org/2000/svg";

/* ---- elements ---- */

// Children: elements, texts, lists of them; null and false are left out.
function append(parent, children) {
	for (const child of children.flat(Infinity))
		if (child !== null && child !== undefined && child !== false)
			parent.append(child);
	return parent;
}

function assign(element, attributes) {
	for (const [name, value] of Object.entries(attributes ?? {}))
		if (value !== null && value !== undefined && value !== false)
			element.setAttribute(name, value);
	return element;
}

export const el = (tag, attributes, ...children) => append(assign(document.createElement(tag), attributes), children);
export const svg = (tag, attributes, ...children) => append(assign(document.createElementNS(SVG, tag), attributes), children);

function morphAttributes(from, to) {
	for (const { name } of [...from.attributes])
		if (!to.hasAttribute(name))
			from.removeAttribute(name);
	for (const { name, value } of to.attributes)
		if (from.getAttribute(name) !== value)
			from.setAttribute(name, value);
}

// Makes `from` the same as `to`, and leaves alone what is: a selection and the place where somebody reads stay.
function morph(from, to) {
	if (from.nodeType !== to.nodeType || from.nodeName !== to.nodeName) {
		from.replaceWith(to);
		return;
	}
	if (from.nodeType === Node.TEXT_NODE) {
		if (from.data !== to.data)
			from.data = to.data;
		return;
	}
	morphAttributes(from, to);
	morphChildren(from, [...to.childNodes]);
}

export function morphChildren(parent, wanted) {
	const has = [...parent.childNodes];

	wanted.forEach((node, i) => (i < has.length ? morph(has[i], node) : parent.append(node)));
	has.slice(wanted.length).forEach((node) => node.remove());
}

/* ---- numbers as text ---- */

const digits = (number) => number.toFixed(number >= 100 || number === 0 ? 0 : number >= 10 ? 1 : 2);
export const count = (number) => Number(number).toLocaleString("en");
export const text = (value) => String(value);

function scaled(number, base, units) {
	let i = 0;

	// 999.6 would be shown as 1000
	while (i < units.length - 1 && number >= base - 0.5) {
		number /= base;
		i++;
	}
	return (i === 0 && Number.isInteger(number) ? text(number) : digits(number)) + units[i].replace(" ", "\u00a0");
}

export const bytes = (number) => scaled(Number(number), 1024, [" B", " KiB", " MiB", " GiB", " TiB", " PiB", " EiB"]);
export const nanoseconds = (number) => (Number(number) === 0 ? "–" : scaled(Number(number), 1000, [" ns", " µs", " ms", " s"]));
export const perSecond = (number) => (number === null ? "–" : scaled(number, 1000, ["/s", " k/s", " M/s", " G/s"]));
export const bytesPerSecond = (number) => (number === null ? "–" : bytes(number) + "/s");
export const percent = (share) => (share === null ? "–" : (share * 100).toFixed(1) + "\u00a0%");
export const clock = (ms) => new Date(ms).toLocaleTimeString("en-GB");

export function duration(seconds) {
	const parts = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
	const first = Math.max(0, parts.findIndex(([size]) => seconds >= size));
	let rest = Math.floor(seconds), result = [];

	for (const [size, unit] of seconds < 1 ? [[1, "s"]] : parts.slice(first, first + 2)) {
		result.push(`${Math.floor(rest / size)} ${unit}`);
		rest %= size;
	}
	return result.join(" ");
}

export const milliseconds = (ms) => (ms < 1000 ? `${ms} ms` : duration(ms / 1000));

/* ---- building blocks ---- */

export const chip = (content, kind = "") => el("span", { class: `chip ${kind}`.trim() }, content);
export const list = (rows) => el("dl", null, rows.filter(Boolean).map(([name, ...value]) => [el("dt", null, name), el("dd", null, value)]));
export const tile = (id, name, big, ...more) =>
	el("div", { class: "card tile", id }, el("p", { class: "name" }, name), el("p", { class: "big" }, big), more);
export const line = (...content) => el("p", { class: "quiet" }, content);

// columns: [name, class of the cells]; rows: lists of cells. On a phone a table of class "rows" has a block for each row.
export function table(kind, columns, rows) {
	const cell = (content, i) => el("td", { class: columns[i][1], "data-name": columns[i][0] }, el("span", null, content));

	return el("table", { class: kind },
		el("thead", null, el("tr", null, columns.map(([name, of]) => el("th", { class: of, scope: "col" }, name)))),
		el("tbody", null, rows.map((cells) => el("tr", null, cells.map(cell)))));
}

// Parts: [class, number] from the left.
export function bar(parts, whole, name, thin) {
	let at = 0;
	const box = svg("svg", { class: thin ? "bar thin" : "bar", viewBox: "0 0 1000 10", preserveAspectRatio: "none", role: "img", "aria-label": name });

	for (const [kind, number] of parts) {
		const width = whole > 0 ? (number / whole) * 1000 : 0;

		box.append(svg("rect", { class: kind, x: at.toFixed(2), y: 0, width: width.toFixed(2), height: 10 }));
		at += width;
	}
	return box;
}
