// What ioredis does with a store, as lines that are equal on every server that speaks Redis's protocol.
//
// `ioredis.cjs HOST PORT`. All keys have one tag, so that a store of several workers has them in one place.

const Redis = require("ioredis");

const [host, port] = [process.argv[2], Number(process.argv[3])];
const key = (name) => `{js}:${name}`;
const line = (step, value) =>
    console.log(`${step}: ${JSON.stringify(value, (_, each) => (each?.type === "Buffer" ? `0x${Buffer.from(each.data).toString("hex")}` : each))}`);
const errorOf = (promise) => promise.catch((error) => `${error.name}: ${error.message}`);

async function strings(redis) {
    line("set", [await redis.set(key("a"), "1"), await redis.set(key("a"), "2", "NX"), await redis.set(key("b"), "gr\u00fc\u00dfe", "PX", 90000)]);
    line("get", [await redis.get(key("a")), await redis.getBuffer(key("b")), await redis.get(key("none"))]);
    line("increments", [await redis.incrby(key("a"), 41), await redis.incrbyfloat(key("a"), "0.125")]);
    line("expiring", [(await redis.pttl(key("b"))) > 80000, await redis.persist(key("b")), await redis.ttl(key("b"))]);
    line("mset", [await redis.mset(new Map([[key("c"), 1], [key("d"), 2]])), await redis.mget(key("c"), key("none"), key("d"))]);
    const big = Buffer.alloc(3_000_017, "abcdefg");
    line("3 MB", [await redis.set(key("big"), big), (await redis.getBuffer(key("big"))).equals(big), await redis.del(key("big"))]);
    line("wrong type", await errorOf(redis.lpush(key("a"), 1)));
    line("unknown", await errorOf(redis.call("NOSUCH", "a")));
}

async function collections(redis) {
    line("hset", [await redis.hset(key("h"), { one: 1, two: "zwei" }), await redis.hgetall(key("h")), await redis.hgetall(key("none"))]);
    line("push", [await redis.rpush(key("l"), 1, 2, 3, 4), await redis.lrange(key("l"), 0, -1), await redis.lpop(key("l"), 2)]);
    line("sets", [await redis.sadd(key("s"), "a", "b", "c"), (await redis.smembers(key("s"))).sort(), await redis.spop(key("none"))]);
    line("zadd", [await redis.zadd(key("z"), 1, "a", 2.5, "b", "inf", "c"), await redis.zrange(key("z"), 0, -1, "WITHSCORES")]);
    line("zrange", [await redis.zrangebyscore(key("z"), "(1", "+inf", "LIMIT", 0, 1), await redis.zrevrank(key("z"), "a")]);
    const fields = Array.from({ length: 1000 }, (_, number) => [`f${number}`, number]).flat();
    await redis.hset(key("large"), ...fields);
    let seen = 0;
    for await (const some of redis.hscanStream(key("large"), { count: 50 })) seen += some.length / 2;
    line("hscan", seen);
    const found = [];
    for await (const some of redis.scanStream({ match: key("?"), count: 3 })) found.push(...some);
    line("scan", [...new Set(found)].sort());
}

async function transactions(redis) {
    line("multi", await redis.multi().set(key("p"), 1).incr(key("p")).lpush(key("p"), 1).get(key("p")).exec().then((all) => all.map(([error, reply]) => error?.message ?? reply)));
    const pipeline = redis.pipeline();
    for (let number = 0; number < 2000; number++) pipeline.set(key(`p${number}`), number).get(key(`p${number}`));
    const replies = await pipeline.exec();
    line("4,000 in a row", [replies.length, replies.reduce((sum, [, reply]) => sum + (Number(reply) || 0), 0)]);
    const other = redis.duplicate();
    await redis.watch(key("p"));
    await other.set(key("p"), "changed");
    line("watched", await redis.multi().set(key("p"), "lost").exec());
    line("kept", await other.get(key("p")));
    line("blocked", (await Promise.all([other.blpop(key("job"), 5), new Promise((done) => setTimeout(done, 50)).then(() => redis.rpush(key("job"), "now"))]))[0]);
    other.disconnect();
}

async function messages(redis) {
    const channel = redis.duplicate();
    const received = [];
    channel.on("messageBuffer", (name, message) => received.push([name, message]));
    channel.on("pmessage", (pattern, name, message) => received.push([pattern, name, message]));
    line("subscribed", [await channel.subscribe("{js}a", "{js}b"), await channel.psubscribe("{js}*")]);
    line("receivers", [await redis.publish("{js}a", "hello"), await redis.publish("{js}c", "pattern"), await redis.publish("elsewhere", "")]);
    while (received.length < 3) await new Promise((done) => setTimeout(done, 5));
    line("messages", received);
    line("left", [await channel.unsubscribe("{js}a", "{js}b"), await channel.punsubscribe("{js}*"), await errorOf(channel.get(key("a")))]);
    channel.disconnect();
}

async function connections() {
    const many = Array.from({ length: 40 }, () => new Redis({ host, port, lazyConnect: true, enableAutoPipelining: true }));
    await Promise.all(many.map((each) => each.connect()));
    await Promise.all(many.flatMap((each) => Array.from({ length: 50 }, () => each.incr(key("n")))));
    line("40 connections", await many[0].get(key("n")));
    many.forEach((each) => each.disconnect());
    const failed = new Redis({ host, port, username: "nobody", password: "wrong", retryStrategy: () => null });
    failed.on("error", () => {});
    line("wrong user", await new Promise((done) => failed.on("error", (error) => done(error.message))));
    failed.disconnect();
}

async function main() {
    const redis = new Redis({ host, port, connectionName: "js" });
    await redis.flushall();
    line("name", await redis.client("GETNAME"));
    await strings(redis);
    await collections(redis);
    await transactions(redis);
    await messages(redis);
    await connections();
    await redis.flushall();
    line("end", await redis.quit());
}

main().catch((error) => {
    console.error(error);
    process.exit(1);
});
