// SPDX-License-Identifier: BSD-2-Clause
/*
 * The dashboard: asks this node for /v1/stats, /v1/clients, /v1/events and /metrics (a member of a cluster for /v1/members, too), one
 * after the other, and shows what has come; two seconds after the last answer again. Names in it are chosen by strangers: they reach the page as text nodes and in
 * attributes that do nothing, never as HTML (tarnd's content security policy forbids that, too). What is shown as it
 * has come carries data-at, its place in the documents, and data-value; what is computed carries data-of.
 * tests/integration/test-dashboard.py compares both. Next to read: dashboard-elements.js,
 * dashboard-latency.js, dashboard-cluster.js.
 */
import {
	bytes, bytesPerSecond, count, el, morphChildren, nanoseconds, perSecond, percent, svg, text,
	bar, chip, clock, duration, line, list, milliseconds, table, tile,
} from "./dashboard-elements.js";
import { clusterProblems, shardsMoving, viewCluster } from "./dashboard-cluster.js";
import { latencyBelow, latencyBuckets } from "./dashboard-latency.js";

const POLL_MS = 2000, TIMEOUT_MS = 8000;
const RATE_MS = 10000; // clients report once a second: over less time rates would jump
const SAMPLES_MAX = 90; // three minutes
const CLIENTS_MAX = 200, EVENTS_MAX = 50;
const TOKEN = "tarn-token"; // in sessionStorage: this tab's, until it is closed

const byId = (id) => document.getElementById(id);
const state = {
	token: null, paused: false, polling: false, timer: null, polls: 0, answered: null, version: null,
	doc: null, map: null, samples: [], epochs: new Map(),
};

/* ---- values out of the documents ---- */

const look = (path) => path.split(".").reduce((value, name) => value?.[name], state.doc);

// The value at this place, as `format` writes it; what is null or not there is a dash.
function val(path, format = count) {
	const value = look(path);

	return el("span", { "data-at": path, "data-value": text(value ?? null) }, value === null || value === undefined ? "–" : format(value));
}

// A value that is computed here.
const derived = (name, value, format) => el("span", { "data-of": name, "data-value": text(value) }, format(value));

const share = (part, whole) => (whole > 0 ? part / whole : null);
const serverNow = () => state.doc.daemon.started_ms + state.doc.daemon.uptime_seconds * 1000;

/* ---- rates: differences between polls ---- */

const flat = (pool) => ({
	...pool.operations, evicted: pool.eviction?.evicted ?? 0, waits: pool.eviction?.waits ?? 0, refused: pool.index.refused,
});

function remember(doc, now) {
	const pools = new Map(doc.pools.map((pool) => [pool.name, flat(pool)]));
	const clients = new Map(doc.clients.filter((c) => c.operations).map((c) => [`${c.client_id} ${c.pool}`, c.operations]));
	const last = state.samples.at(-1);

	// another daemon counts from the beginning
	if (last && (last.pid !== doc.daemon.pid || last.started !== doc.daemon.started_ms)) {
		state.samples = [];
		state.epochs.clear();
	}
	state.samples.push({
		now, pid: doc.daemon.pid, started: doc.daemon.started_ms, pools, clients, cpu: doc.process.cpu_seconds, latency: doc.latency,
	});
	state.samples.splice(0, state.samples.length - SAMPLES_MAX);
	for (const pool of doc.pools)
		if (state.epochs.get(pool.name)?.epoch !== pool.epoch)
			state.epochs.set(pool.name, { epoch: pool.epoch, since: now });
}

// The sample with which the one at `at` is compared; null: there is none.
function before(at) {
	const now = state.samples[at]?.now;
	const found = state.samples.findIndex((sample, i) => i < at && now - sample.now <= RATE_MS + POLL_MS / 2);

	return found < 0 ? (at > 0 ? state.samples[at - 1] : null) : state.samples[found];
}

// How much of `read(sample)` a second, up to the sample at `at`; null when it is not known.
function rate(read, at = state.samples.length - 1) {
	const to = state.samples[at], from = before(at), grown = from ? read(to) - read(from) : NaN;

	return Number.isFinite(grown) && grown >= 0 ? (grown * 1000) / (to.now - from.now) : null;
}

const OPERATIONS = ["gets", "puts", "deletes", "adds"];
const sum = (numbers) => numbers.reduce((total, number) => total + Number(number), 0);
const all = (operations) => (operations ? sum(OPERATIONS.map((name) => operations[name])) : NaN);
const ofPool = (name, member) => (sample) => Number(sample.pools.get(name)?.[member]);
const poolOps = (name) => (sample) => all(sample.pools.get(name));
const totalOps = (sample) => sum([...sample.pools.values()].map(all));
const total = (member) => (sample) => sum([...sample.pools.values()].map((pool) => pool[member]));

function recentLatency(pool, op, share) {
	const to = state.samples.length - 1, key = `${op} ${pool}`;

	return latencyBelow(share, before(to)?.latency.get(key), state.samples[to].latency.get(key));
}

function recentHits(gets, hits) {
	const asked = rate(gets), found = rate(hits);

	return asked > 0 && found !== null ? Math.min(1, found / asked) : null;
}

/* ---- drawings ---- */

function spark(read, name) {
	const rates = state.samples.map((_, i) => rate(read, i)).filter((r) => r !== null), most = Math.max(...rates, 1);
	const step = 300 / (Math.max(rates.length, SAMPLES_MAX / 3) - 1);
	const points = rates.map((r, i) => `${(300 - (rates.length - 1 - i) * step).toFixed(1)},${(38 - (r / most) * 36).toFixed(1)}`);

	return svg("svg", { class: "spark", viewBox: "0 0 300 40", preserveAspectRatio: "none", role: "img", "aria-label": name },
		svg("polyline", { points: points.join(" ") }));
}

/* ---- what an operator has to look at ---- */

function poolProblems(pool) {
	const epoch = state.epochs.get(pool.name), stood = state.samples.at(-1).now - (epoch?.since ?? 0);
	const damaged = pool.pages.damaged + pool.recycling.damaged + pool.index.damaged + pool.expiry.damaged;
	const waits = pool.sweep.waits_for, name = `Pool ${pool.name}: `, grows = (member) => rate(ofPool(pool.name, member)) > 0;

	return [
		pool.mode === "store" && pool.pages.free === 0 &&
			["bad", "no page is free: puts fail that need one. Delete keys, or make the pool larger."],
		pool.mode === "store" && pool.pages.free > 0 && pool.pages.free < pool.pages.total / 20 &&
			["warn", `fewer than 5 % of its pages are free (${count(pool.pages.free)} of ${count(pool.pages.total)}).`],
		grows("waits") && ["warn", "puts wait for memory: eviction does not keep up."],
		grows("refused") && ["bad", "the index can not grow: no page is free, or it is as deep as it can be."],
		stood > Math.max(10000, 20 * pool.epoch_ms) && ["bad", `its epoch stands still for ${duration(stood / 1000)}: the keeper hangs.`],
		damaged > 0 && ["bad", `${count(damaged)} words that can not be: look for a client that writes where it should not; tarn pool check.`],
		waits && ["warn", `the sweep waits for client ${waits.client_id} (${waits.name}, process ${waits.pid}), which stands still.`],
		pool.regions?.not_kept > 0 && ["warn", `${count(pool.regions.not_kept)} regions will be gone after a restart: systemd has no place for them.`],
		pool.clients_unfenced > 0 && ["warn", `${count(pool.clients_unfenced)} clients of the daemon before still have the memory mapped.`],
		...pool.access_keys.map((key) => key.used_up.length > 0 && ["warn", `key ${key.key_id} has used up its ${key.used_up.join(", ")}.`]),
	].filter(Boolean).map(([level, words]) => [level, name + words]);
}

// What `tarn doctor` says of a port that is not active.
function portAdvice(device) {
	const now = String(device.port_state).toLowerCase();

	if (!device.present)
		return "It is gone: driver, slot, cable? tarnd takes it back when it is there again.";
	if (now === "active")
		return null;
	if (device.link_layer === "infiniband" && (now === "init" || now === "armed"))
		return "No subnet manager has configured the port: does opensm run, here or in the switch?";
	return device.link_layer === "infiniband" ? "Look at cable, transceiver and switch port."
		: "ip link set NETDEV up on the node; then cable, transceiver, switch port.";
}

function deviceProblems(device) {
	const advice = portAdvice(device), growing = device.counters.filter((c) => c.grave && c.per_second > 0);

	return [
		...(advice ? [["bad", `Device ${device.name} is ${device.present ? device.port_state : "not there"}. ${advice}`]] : []),
		...growing.map((c) => ["warn", `Device ${device.name}: ${c.meaning} (${c.name}, ${perSecond(c.per_second)}): ${c.advice}.`]),
	];
}

function problems(doc) {
	const expires = doc.http?.certificate_expires, left = expires ? expires - serverNow() / 1000 : Infinity;

	const found = [
		...(doc.reasons ?? []).map((reason) => ["bad", `Not ready: ${reason}`]),
		...(doc.cluster ? clusterProblems(doc) : []),
		...doc.devices.flatMap(deviceProblems),
		...doc.pools.flatMap(poolProblems),
		...(left < 14 * 86400 ? [["warn", `The certificate of this listener expires in ${duration(Math.max(0, left))}.`]] : []),
	];

	return [...found.filter(([level]) => level === "bad"), ...found.filter(([level]) => level !== "bad")];
}

/* ---- the parts of the page ---- */

function viewTiles(doc) {
	const used = sum(doc.pools.map((p) => p.memory.used_bytes)), size = sum(doc.pools.map((p) => p.bytes));
	const worst = (op) => Math.max(0, ...doc.pools.map((p) => Number(p.operations[`${op}_latency_below_ns`].p99)));
	const worstNow = (op) => Math.max(0, ...doc.pools.map((p) => recentLatency(p.name, op, 0.99) ?? 0));
	const latency = (op, name) => tile(`tile-${op}`, name, derived(`${op}_p99_now`, worstNow(op), nanoseconds),
		line("last 10 s; since the start ", derived(`${op}_p99`, worst(op), nanoseconds)));
	const active = doc.devices.filter((d) => !portAdvice(d)).length, bad = active < doc.devices.length;

	return el("div", { class: "tiles", id: "tiles" },
		tile("tile-ops", "Operations", derived("ops", rate(totalOps), perSecond), spark(totalOps, "Operations in the last three minutes")),
		tile("tile-memory", "Memory used", derived("used", used, bytes), line("of ", derived("size", size, bytes)),
			bar([["used", used]], size, "Memory in use", true)),
		tile("tile-hits", "Hits of gets", derived("hits", recentHits(total("gets"), total("hits")), percent), line("last 10 s")),
		latency("get", "Get, 99 % below"),
		latency("put", "Put, 99 % below"),
		tile("tile-clients", "Clients", derived("clients", doc.clients.length, count), line(val("daemon.guests"), " other connections")),
		tile("tile-rdma", "RDMA", doc.devices.length === 0 ? "not used" : derived("ports", `${active} of ${doc.devices.length}`, text),
			line(doc.devices.length === 0 ? "shared memory alone" : "ports active ", bad && chip("look below", "bad"))),
		tile("tile-process", "CPU of tarnd", derived("cpu", rate((sample) => sample.cpu), percent),
			line(val("process.resident_bytes", bytes), " resident")));
}

function viewProblems(doc) {
	return el("ul", { class: "problems", id: "problems" }, problems(doc).map(([level, words]) => el("li", { class: level }, words)));
}

function viewCapacity(pool, at) {
	const parts = [["used", "used"], ["reserved", "reserved"], ["bad", "broken"], ["free", "free"]];
	const number = (state) => pool.memory[`${state}_bytes`];

	return [
		bar(parts.map(([state, kind]) => [kind, number(state)]), pool.bytes, "Memory of the pool"),
		el("p", { class: "legend" }, parts.map(([state, kind]) => (state !== "bad" || number(state) > 0) &&
			el("span", null, el("i", { class: kind }), state, " ", val(`${at}.memory.${state}_bytes`, bytes)))),
	];
}

function viewRates(pool, at) {
	const names = [["gets", "gets"], ["hits", "hits"], ["puts", "puts"], ["deletes", "deletes"], ["adds", "adds to counters"], ["retries", "retries"],
		["errors", "errors"], ["round_trips", "round trips"], ["rpcs", "messages to tarnd"]];
	const sizes = [["bytes_read", "read"], ["bytes_written", "written"]];
	const row = (format, speed) => ([member, name]) => [name, val(`${at}.operations.${member}`, format),
		derived(`${at}.rate.${member}`, rate(ofPool(pool.name, member)), speed)];

	return [
		el("h3", null, "What clients do"),
		spark(poolOps(pool.name), `Operations on ${pool.name} in the last three minutes`),
		table(null, [["", "text head"], ["since the start", ""], ["now", ""]],
			[...names.map(row(count, perSecond)), ...sizes.map(row(bytes, bytesPerSecond))]),
	];
}

function viewLatency(pool, at) {
	const shares = [["p50", 0.5], ["p99", 0.99], ["p999", 0.999]];
	const now = (op, name) => [name, ...shares.map(([p, part]) =>
		derived(`${at}.below.${op}.${p}`, recentLatency(pool.name, op, part), (ns) => nanoseconds(ns ?? 0)))];
	const since = (op, name) => [name, ...shares.map(([p]) => val(`${at}.operations.${op}_latency_below_ns.${p}`, nanoseconds))];
	const operations = pool.operations, looks = operations.cache_hits + operations.cache_misses;

	return [
		el("h3", null, "Latency below which this share stays"),
		table(null, [["", "text head"], ["50 %", ""], ["99 %", ""], ["99.9 %", ""]],
			[now("get", "gets, last 10 s"), since("get", "since the start"), now("put", "puts, last 10 s"), since("put", "since the start")]),
		line("With gets exists, with puts deletes and adds."),
		el("h3", null, "Hits"),
		list([
			["gets, last 10 s", derived(`${at}.recent_hits`, recentHits(ofPool(pool.name, "gets"), ofPool(pool.name, "hits")), percent)],
			["gets, since the start", derived(`${at}.hit_ratio`, share(operations.hits, operations.gets), percent)],
			["clients' caches of locations", derived(`${at}.cache_ratio`, share(operations.cache_hits, looks), percent)],
		]),
	];
}

function viewKeeper(pool, at) {
	const cache = pool.eviction !== null;

	return [
		el("h3", null, "Keeper"),
		list([
			["epoch", val(`${at}.epoch`)],
			["keys", val(`${at}.keys`), " (", val(`${at}.stored_bytes`, bytes), ")"],
			["counted", val(`${at}.keys_counted_ms_ago`, (ms) => `${milliseconds(ms)} ago`)],
			["index", val(`${at}.index.load_permille`, (n) => percent(n / 1000)), " full"],
			["its subtables", val(`${at}.index.subtables`)],
			["splits, refused", val(`${at}.index.splits`), ", ", val(`${at}.index.refused`)],
			["blocks used again", val(`${at}.recycling.blocks_aged`)],
			["pages given back", val(`${at}.recycling.pages_freed`)],
			["expired keys", val(`${at}.expiry.expired`), " (", val(`${at}.expiry.expired_bytes`, bytes), ")"],
			cache && ["evicted keys", val(`${at}.eviction.evicted`), " (", val(`${at}.eviction.evicted_bytes`, bytes), ")"],
			cache && ["evicted now", derived(`${at}.rate.evicted`, rate(ofPool(pool.name, "evicted")), perSecond)],
			cache && ["puts that waited", val(`${at}.eviction.waits`)],
			["sweep", val(`${at}.sweep.state`, text), ", ", val(`${at}.sweep.sweeps`), " done"],
			["freed of dead clients", val(`${at}.sweep.leaked_bytes`, bytes)],
		]),
		pool.regions.memory_limit_bytes > 0 && [el("h3", null, "Regions"), list([
			["regions", val(`${at}.regions.count`)],
			["their memory", val(`${at}.regions.memory_bytes`, bytes), " of ", val(`${at}.regions.memory_limit_bytes`, bytes)],
		])],
	];
}

function viewClasses(pool, at) {
	const row = (c, i) => {
		const place = `${at}.classes.${i}`, blocks = c.blocks_in_use + c.blocks_retired + c.blocks_aged;

		return [[val(`${place}.block_bytes`, bytes), c.counters && " (counters)"],
			derived(`${place}.pages`, c.slab + c.full + c.partial + c.orphan, count), val(`${place}.blocks_in_use`),
			val(`${place}.blocks_retired`), val(`${place}.blocks_aged`),
			bar([["used", c.blocks_in_use], ["resting", c.blocks_retired]], blocks, "Share of the blocks in use and at rest", true)];
	};

	return pool.classes.length > 0 && [
		el("h3", null, "Sizes of blocks"),
		table(null, [["size", "text head"], ["pages", ""], ["blocks used", ""], ["resting", ""], ["free", ""], ["", "wide-only"]], pool.classes.map(row)),
	];
}

function viewKeys(pool, at) {
	const row = (key, i) => [val(`${at}.access_keys.${i}.key_id`, text), ...["keys", "bytes", "pages"].map((what) => [
		val(`${at}.access_keys.${i}.used.${what}`, what === "bytes" ? bytes : count),
		key.quota[what] > 0 && [" of ", val(`${at}.access_keys.${i}.quota.${what}`, what === "bytes" ? bytes : count)]])];

	return pool.access_keys.length > 0 && [
		el("h3", null, "Access keys and their quotas"),
		table(null, [["key", "text head"], ["keys", ""], ["bytes", ""], ["pages", ""]], pool.access_keys.map(row)),
	];
}

function viewPool(pool, i) {
	const at = `pools.${i}`;

	return el("section", { class: "card", "data-pool": i },
		el("div", { class: "title" }, el("h2", null, "Pool ", val(`${at}.name`, text)), chip(val(`${at}.bytes`, bytes)), chip(val(`${at}.mode`, text)),
			chip(["keys: ", pool.auth === "key" ? "needed" : "none"]), chip(["atomics: ", val(`${at}.atomics`, text)]),
			chip([val(`${at}.clients`), " of ", val(`${at}.max_clients`), " clients"]),
			pool.opened === "kept" && chip("kept over the start"), pool.eviction?.active && chip("evicts", "warn")),
		viewCapacity(pool, at),
		el("div", { class: "columns" }, el("div", null, viewRates(pool, at)), el("div", null, viewLatency(pool, at), viewKeys(pool, at)),
			el("div", null, viewKeeper(pool, at))),
		viewClasses(pool, at));
}

function viewListeners(doc) {
	const row = (l, i) => [val(`listeners.${i}.name`, text), val(`listeners.${i}.kind`, text), val(`listeners.${i}.${l.path ? "path" : "address"}`, text),
		l.device ?? "–", [chip(l.up ? "up" : (l.state ?? "down"), l.up ? "good" : "bad"), l.failure && [" ", l.failure]],
		l.connections === undefined ? "–" : val(`listeners.${i}.connections`)];

	return table("rows", [["listener", "text head"], ["kind", "text"], ["at", "text long"], ["device", "text"], ["state", "text long"], ["connections", ""]],
		doc.listeners.map(row));
}

function viewCounters(device, at) {
	const seen = device.counters.map((c, i) => [c, i]).filter(([c]) => c.count > 0);
	const row = ([c, i]) => [val(`${at}.counters.${i}.name`, text), val(`${at}.counters.${i}.count`), val(`${at}.counters.${i}.per_second`, perSecond),
		[el("div", null, chip(c.grave ? (c.per_second > 0 ? "grows" : "was") : "note", c.grave && c.per_second > 0 ? "bad" : ""), " ", c.meaning),
			el("div", { class: "advice" }, c.advice)]];

	if (device.counters.length === 0)
		return line("The driver has no counters of loss, retries and congestion: look at the switch's.");
	if (seen.length === 0)
		return line(`All ${device.counters.length} counters of loss, retries and congestion are 0.`);
	return [
		table("rows", [["counter of the driver", "text head"], ["count", ""], ["now", ""], ["what it means, and what to do", "text wide long"]], seen.map(row)),
		line(`${device.counters.length - seen.length} other counters are 0. A count that does not grow is of the past.`),
	];
}

function viewDevice(device, i) {
	const at = `devices.${i}`, advice = portAdvice(device);

	return el("div", { "data-device": i },
		el("h3", null, "Device ", val(`${at}.name`, text), " ", chip(advice ? (device.present ? device.port_state : "gone") : "active", advice ? "bad" : "good")),
		advice && line(advice),
		el("div", { class: "columns" },
			list([
				["transport", val(`${at}.transport`, text)], ["port", val(`${at}.port`), " ", val(`${at}.port_state`, text)],
				["MTU", val(`${at}.active_mtu_bytes`, bytes)], ["addresses", device.gids.join(", ") || "–"],
				["atomic operations", val(`${at}.atomics`, text)], ["NUMA node", val(`${at}.numa_node`, text)],
			]),
			list([
				["connections, queue pairs", val(`${at}.connections`), ", ", val(`${at}.queue_pairs`)],
				["registered", val(`${at}.registered_bytes`, bytes)], ["port went down", val(`${at}.port_errors`)],
				["queue pairs with errors", val(`${at}.queue_errors`)], ["broke, went away", val(`${at}.fatal_events`), ", ", val(`${at}.removed`)],
			])),
		viewCounters(device, at));
}

function viewRdma(doc) {
	return el("section", { class: "card", id: "rdma" },
		el("div", { class: "title" }, el("h2", null, "Listeners and RDMA"), chip(doc.daemon.ready ? "ready" : "not ready", doc.daemon.ready ? "good" : "bad")),
		viewListeners(doc),
		doc.devices.length === 0 ? line("No RDMA device is used: clients on this host come by shared memory.") : doc.devices.map(viewDevice),
		line("tarn doctor, on the node, looks deeper: GIDs, limits, MTU along the path, a peer."));
}

function viewClient(c, i) {
	const at = `clients.${i}`, operations = c.operations, key = `${c.client_id} ${c.pool}`;
	const flags = [c.read_only && "read only", c.unfenced && "of the daemon before", !c.reporting && "no report yet"].filter(Boolean);

	return [val(`${at}.name`, text), val(`${at}.client_id`, text), val(`${at}.pool`, text), val(`${at}.transport`, text),
		c.pid === null ? "–" : [val(`${at}.pid`, text), ", ", val(`${at}.uid`, text)], val(`${at}.key_id`, text),
		duration(Math.max(0, (serverNow() - c.connected_ms) / 1000)),
		derived(`${at}.ops`, rate((sample) => all(sample.clients.get(key))), perSecond),
		derived(`${at}.hit_ratio`, operations ? share(operations.hits, operations.gets) : null, percent),
		operations ? val(`${at}.operations.get_latency_below_ns.p99`, nanoseconds) : "–",
		operations ? val(`${at}.operations.errors`) : "–", flags.join(", ") || "–"];
}

function viewClients(doc) {
	const columns = [["name", "text head long"], ["client", ""], ["pool", "text"], ["by", "text"], ["pid, uid", ""], ["key", "text"], ["since", ""], ["operations", ""],
		["hits", ""], ["get, 99 % below", ""], ["errors", ""], ["notes", "text"]];

	return el("section", { class: "card", id: "clients" },
		el("div", { class: "title" }, el("h2", null, "Clients"), chip(count(doc.clients.length))),
		doc.clients.length === 0 ? line("Nobody is connected.") : table("rows", columns, doc.clients.slice(0, CLIENTS_MAX).map(viewClient)),
		doc.clients.length > CLIENTS_MAX && line(`and ${count(doc.clients.length - CLIENTS_MAX)} more: tarn clients lists them all.`));
}

function viewEvents(doc) {
	const newest = doc.events.map((event, i) => [event, i]).reverse().slice(0, EVENTS_MAX);
	const row = ([event, i]) => [el("time", { datetime: new Date(event.time_ms).toISOString() }, new Date(event.time_ms).toLocaleString("en-GB")),
		val(`events.${i}.kind`, text), val(`events.${i}.subject`, text), val(`events.${i}.text`, text)];

	return el("section", { class: "card", id: "events" },
		el("div", { class: "title" }, el("h2", null, "Events"), chip(count(doc.events.length))),
		table("rows", [["time", "text head"], ["kind", "text"], ["of", "text"], ["what has happened", "text wide long"]], newest.map(row)));
}

function render() {
	const doc = state.doc, header = byId("node");

	const cluster = doc.cluster ? [viewCluster(doc, { val, derived, now: serverNow() })] : [];

	morphChildren(byId("main"), [viewTiles(doc), viewProblems(doc), ...cluster, ...doc.pools.map(viewPool), viewRdma(doc), viewClients(doc),
		viewEvents(doc)]);
	morphChildren(header, [...el("p", null, "tarnd ", val("daemon.version", text), ", process ", val("daemon.pid", text), ", up ",
		val("daemon.uptime_seconds", duration), ", reloads: ", val("daemon.reloads.applied"), ", pools: ", derived("pools", doc.pools.length, count)).childNodes]);
}

/* ---- asking ---- */

class Refused extends Error {}
class Unreachable extends Error {}

async function get(path, accept = [200], read = "json") {
	const headers = state.token ? { Authorization: `Bearer ${state.token}` } : {};
	const options = { headers, cache: "no-store", credentials: "omit", redirect: "error", signal: AbortSignal.timeout(TIMEOUT_MS) };
	const answer = await fetch(path, options).catch((error) => {
		throw error.name === "TimeoutError" ? error : new Unreachable();
	});

	if (answer.status === 401)
		throw new Refused();
	if (!accept.includes(answer.status))
		throw new Error(`tarnd answers ${answer.status} to ${path}`);
	return answer[read]().catch((error) => {
		throw error instanceof TypeError ? new Unreachable() : error; // cut off
	});
}

// The map is long, and of interest only while shards move; it is another one when its epoch is.
async function askCluster(stats) {
	const found = stats.cluster ? await get("/v1/members") : { cluster: null, members: [] };

	if (!found.cluster || shardsMoving(found) === 0)
		state.map = null;
	else if (state.map?.epoch !== found.cluster.epoch)
		state.map = (await get("/v1/map")).map;
	return { cluster: found.cluster, members: found.members, map: state.map };
}

async function ask() {
	const stats = await get("/v1/stats"), now = performance.now();
	const clients = await get("/v1/clients"), events = await get("/v1/events");
	const cluster = await askCluster(stats);
	const metrics = await get("/metrics", [200], "text");
	const ready = stats.daemon.ready ? null : await get("/readyz", [200, 503]);

	return [{ ...stats, ...cluster, clients: clients.clients, events: events.events, reasons: ready?.reasons, latency: latencyBuckets(metrics) }, now];
}

function say(id, words) {
	byId(id).textContent = words ?? "";
	byId(id).hidden = !words;
}

function status(words, kind) {
	byId("state").textContent = words;
	byId("state").className = `chip ${kind}`;
}

function shown(doc, now) {
	state.version ??= doc.daemon.version;
	state.doc = doc;
	state.answered = Date.now();
	remember(doc, now);
	render();
	say("gone", null);
	say("upgraded", doc.daemon.version !== state.version && `tarnd is now ${doc.daemon.version}, and this page is of ${state.version}: load it again.`);
	byId("main").classList.remove("stale");
	status(`live ${clock(state.answered)}`, "good");
}

function lost(error) {
	const why = error.name === "TimeoutError" ? `has not answered for ${TIMEOUT_MS / 1000} seconds`
		: error instanceof Unreachable ? "can not be reached" : `could not be understood: ${error.message}`;

	if (!(error instanceof Unreachable) && error.name !== "TimeoutError")
		console.error(error);
	say("gone", `tarnd ${why}.${state.answered ? ` What is shown is of ${clock(state.answered)}.` : ""} This page goes on trying.`);
	byId("main").classList.add("stale");
	status("gone", "bad");
}

// Without a token, or with a wrong one: nothing that was shown stays.
function wantToken(words) {
	state.doc = state.map = null;
	state.samples = [];
	byId("main").replaceChildren();
	byId("node").textContent = "";
	byId("forget").hidden = true;
	say("gone", words);
	status("token needed", "warn");
	if (byId("ask").hidden) {
		byId("ask").hidden = false;
		byId("token").focus();
	}
}

function keepToken(token) {
	state.token = token;
	byId("forget").hidden = !token;
	try {
		if (token)
			sessionStorage.setItem(TOKEN, token);
		else
			sessionStorage.removeItem(TOKEN);
	} catch {
		// no storage: then it is kept by this page alone
	}
}

function refused() {
	const had = state.token;

	keepToken(null);
	wantToken(had ? "tarnd does not take this token." : null);
}

async function poll() {
	const wanted = () => !state.paused && byId("ask").hidden;
	const token = state.token;

	clearTimeout(state.timer);
	if (state.polling || !wanted())
		return;
	if (!document.hidden) {
		state.polling = true;
		document.documentElement.dataset.asking = "yes";
		try {
			const [doc, now] = await ask();

			if (wanted())
				shown(doc, now);
		} catch (error) {
			if (!(error instanceof Refused))
				lost(error);
			else if (token === state.token) // else another one was given meanwhile
				refused();
		}
		state.polling = false;
		document.documentElement.dataset.polls = ++state.polls;
		document.documentElement.dataset.asking = "no";
	}
	state.timer = setTimeout(poll, POLL_MS);
}

/* ---- the beginning ---- */

byId("pause").addEventListener("click", () => {
	state.paused = !state.paused;
	byId("pause").textContent = state.paused ? "Go on" : "Pause";
	byId("pause").setAttribute("aria-pressed", state.paused);
	if (state.paused)
		status(`paused ${clock(Date.now())}`, "warn");
	poll();
});

byId("forget").addEventListener("click", () => {
	keepToken(null);
	wantToken(null);
});

byId("ask").addEventListener("submit", (event) => {
	event.preventDefault();
	keepToken(byId("token").value.trim());
	byId("token").value = "";
	byId("ask").hidden = true;
	say("gone", null);
	poll();
});

document.addEventListener("visibilitychange", () => poll());

byId("host").textContent = location.host;
document.title = `Tarn ${location.host}`;
try {
	keepToken(sessionStorage.getItem(TOKEN));
} catch {
	// as above
}
poll();
