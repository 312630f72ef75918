// SPDX-License-Identifier: BSD-2-Clause
/*
 * Latencies of the last seconds: /v1/stats has percentiles since the daemon's start alone, /metrics the buckets that they
 * are made of. The difference between two looks at these is what has happened in between. No state.
 */

const BUCKET = /^tarn_op_latency_seconds_bucket\{pool="((?:[^"\\\n]|\\.)*)",op="(\w+)",le="([^"]+)"\} (\d+)$/gm;
const unescape = (label) => label.replace(/\\(.)/g, (_, char) => (char === "n" ? "\n" : char));

// Prometheus' text -> Map of "get POOL" and "put POOL" to lists of [upper bound in ns, how many are below it].
export function latencyBuckets(text) {
	const found = new Map();

	for (const [, pool, op, bound, number] of text.matchAll(BUCKET)) {
		const key = `${op} ${unescape(pool)}`, buckets = found.get(key) ?? [];
		// the last one has no bound: it is shown as twice the one before, as in /v1/stats
		const ns = bound === "+Inf" ? 2 * (buckets.at(-1)?.[0] ?? 0) : Math.round(Number(bound) * 1e9);

		buckets.push([ns, Number(number)]);
		found.set(key, buckets);
	}
	return found;
}

// The bound in ns below which this share of what was added between the two has stayed; null: nothing was, or it is not known.
export function latencyBelow(share, from, to) {
	if (!from || !to || from.length !== to.length)
		return null;
	const added = to.map(([ns, number], i) => [ns, number - from[i][1]]), all = added.at(-1)?.[1] ?? 0;

	return all > 0 ? added.find(([, number]) => number >= share * all)[0] : null;
}
