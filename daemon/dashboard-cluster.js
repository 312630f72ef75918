// SPDX-License-Identifier: BSD-2-Clause
/*
 * The dashboard's part of the cluster, as this member sees it: of `cluster` in /v1/stats, of /v1/members, and, while shards move, of
 * /v1/map. No state. dashboard.js asks, and shows nothing of this where there is no cluster.
 */
import { count, duration, el, milliseconds, text, bar, chip, line, list, table } from "./dashboard-elements.js";

const MEMBERS_MAX = 200, MOVES_MAX = 50;
const KINDS = { up: "good", draining: "warn", down: "bad", left: "" };

const short = (ns) => milliseconds(Math.round(Number(ns) / 1e6));
const sum = (members, name) => members.reduce((total, member) => total + Number(member[name]), 0);
const namesOf = (members) => members.slice(0, 5).map((m) => m.name).join(", ") + (members.length > 5 ? ", ..." : "");
// "1 shard is", "2 shards are"
const shardsAre = (number) => (number === 1 ? "1 shard is" : `${count(number)} shards are`);

export const shardsMoving = (doc) => sum(doc.members, "shards_incoming");

/* ---- what an operator has to look at ---- */

function unavailable(cluster, members) {
	const down = Number(cluster.shards_unavailable.down), nobody = Number(cluster.shards_unavailable.nobody);
	const cache = cluster.mode === "cache", who = namesOf(members.filter((m) => m.state === "down"));
	const keys = cache ? "their keys are missing." : "their keys can not be reached, and are not lost.";

	return [
		down > 0 && [cache ? "warn" : "bad", `${shardsAre(down)} unavailable, since their owner is down (${who}): ${keys} Start it again.`],
		nobody > 0 && [cache ? "warn" : "bad", `${shardsAre(nobody)} nobody's: a member that is up takes them, if one has a weight.`],
	];
}

export function clusterProblems(doc) {
	const cluster = doc.cluster, members = doc.members, age = cluster.age_ns === null ? null : Number(cluster.age_ns) / 1e9;
	const bound = Number(cluster.map_bound_ns) / 1e9;
	const idle = members.filter((m) => m.state === "down" && Number(m.shards) === 0);

	return [
		!cluster.lease_held && ["bad", "this member has lost its lease and serves nobody: does it reach etcd? It goes on by itself."],
		cluster.lease_held && age === null && ["warn", "it is not known whether its map is the newest."],
		cluster.lease_held && age > bound && ["warn",
			`for ${duration(age)} nobody has said that its map is the newest; clients stop writing after ${duration(bound)} (map_bound) at the latest. Does it reach etcd?`],
		...unavailable(cluster, members),
		idle.length > 0 && ["warn", `down, and without shards: ${namesOf(idle)}. Start it again, or tarn forget it.`],
		cluster.membership_error !== null && ["warn", `the last answer of ${cluster.membership} was wrong: ${cluster.membership_error}`],
	].filter(Boolean).map(([level, words]) => [level, `Cluster ${cluster.name}: ${words}`]);
}

/* ---- the parts of the card ---- */

function viewMap(doc, { val, derived, now }) {
	const cluster = doc.cluster, leases = cluster.lease_left_ns !== null;

	return el("div", null,
		el("h3", null, "Map"),
		list([
			["epoch", val("cluster.epoch")],
			["in use for", derived("cluster.map_seconds", Math.max(0, (now - cluster.map_since_ms) / 1000), duration)],
			["known to be the newest", cluster.age_ns === null ? "never" : [val("cluster.age_ns", short), " ago"]],
			["counts as the newest for", val("cluster.map_bound_ns", short)],
			["changes since the start", val("cluster.map_changes")],
			["read from", val("cluster.map_source", text)],
			["lease", leases ? [cluster.lease_held ? "held, " : "lost, ", val("cluster.lease_left_ns", short), " left"] : "none: a fixed map"],
			leases && ["times without lease", val("cluster.fenced")],
			leases && ["questions to etcd, failed", val("cluster.etcd_requests"), ", ", val("cluster.etcd_failures")],
		]));
}

function viewShards(doc, { val, derived }) {
	const cluster = doc.cluster;

	return el("div", null,
		el("h3", null, "Shards"),
		list([
			["of the cluster", val("cluster.shards")],
			["of this member", val("cluster.shards_owned")],
			["of these open", val("cluster.shards_open")],
			["moving, in the cluster", derived("cluster.moving", shardsMoving(doc), count)],
			["taken without owner", val("cluster.shards_taken")],
			["unavailable: owner down", val("cluster.shards_unavailable.down")],
			["unavailable: nobody's", val("cluster.shards_unavailable.nobody")],
		]));
}

const address = (at, m, { val }) => m.addresses.map((_, i) => [i > 0 && ", ", val(`${at}.addresses.${i}.address`, text)]);

function viewMembers(doc, tools) {
	const { val, derived } = tools, whole = Number(doc.cluster.shards);
	// those that need a look first
	const order = doc.members.map((m, i) => [m, i]).sort(([a, i], [b, j]) => (a.state === "up") - (b.state === "up") || i - j);
	const row = ([m, i]) => {
		const at = `members.${i}`;

		return [[val(`${at}.name`, text), m.self && [" ", chip("this one")]], el("span", { class: `chip ${KINDS[m.state] ?? ""}`.trim() },
			val(`${at}.state`, text)), val(`${at}.weight`), [val(`${at}.shards`), m.state === "down" && Number(m.shards) > 0 && " unavailable"],
		val(`${at}.shards_outgoing`), val(`${at}.shards_incoming`), derived(`${at}.boot`, m.boot_id?.slice(0, 8) ?? "–", text), address(at, m, tools),
		bar([[m.state === "down" ? "broken" : "used", Number(m.shards)]], whole, "Share of the shards", true)];
	};

	return [
		table("rows", [["member", "text head long"], ["state", "text"], ["weight", ""], ["shards", ""], ["gives", ""], ["gets", ""], ["boot id", "text"],
			["addresses", "text long"], ["", "wide-only"]], order.slice(0, MEMBERS_MAX).map(row)),
		order.length > MEMBERS_MAX && line(`and ${count(order.length - MEMBERS_MAX)} more: tarn members lists them all.`),
	];
}

// [from, to, how many shards], the most first; names, or null.
function pairs(map) {
	const names = new Map(map.members.map((m) => [m.number, m.name])), found = new Map();

	for (const move of map.moves ?? []) {
		const from = names.get(map.owners?.[move.shard]?.[0]) ?? null, to = names.get(move.to) ?? null, key = JSON.stringify([from, to]);

		found.set(key, [from, to, (found.get(key)?.[2] ?? 0) + 1]);
	}
	return [...found.values()].sort((a, b) => b[2] - a[2]);
}

function viewMoves(doc, { derived }) {
	const moves = doc.map ? pairs(doc.map) : [];
	const row = ([from, to, shards], i) => [from ?? "nobody", to ?? "nobody", derived(`moves.${i}`, shards, count)];

	return moves.length > 0 && [
		el("h3", null, "Shards on the way"),
		table(null, [["from", "text head long"], ["to", "text long"], ["shards", ""]], moves.slice(0, MOVES_MAX).map(row)),
		moves.length > MOVES_MAX && line(`and ${count(moves.length - MOVES_MAX)} more pairs: tarn map show has them all.`),
	];
}

function viewDrains(doc, { derived }) {
	const draining = doc.members.filter((m) => m.state === "draining");

	return draining.length > 0 && line(`Drained: ${namesOf(draining)}; `,
		derived("cluster.drain_left", sum(draining, "shards"), count), " shards are left to hand over.");
}

// tools: val and derived of dashboard.js, and the daemon's clock in ms as `now`.
export function viewCluster(doc, tools) {
	const { val } = tools, cluster = doc.cluster;

	return el("section", { class: "card", id: "cluster" },
		el("div", { class: "title" }, el("h2", null, "Cluster ", val("cluster.name", text)), chip(["member ", val("cluster.member", text)]),
			chip(val("cluster.state", text), KINDS[cluster.state]), chip(["pool ", val("cluster.pool", text)]), chip(val("cluster.mode", text)),
			chip(val("cluster.membership", text)), !cluster.lease_held && chip("no lease", "bad")),
		el("div", { class: "columns" }, viewMap(doc, tools), viewShards(doc, tools)),
		el("h3", null, "Members"),
		viewDrains(doc, tools),
		viewMembers(doc, tools),
		viewMoves(doc, tools));
}
