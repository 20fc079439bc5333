"""What redis-py does with a store, as lines that are equal on every server that speaks Redis's protocol.

`redis_py.py HOST PORT PROTOCOL`. All keys have one tag, so that a store of several workers has them in one place.
"""

import asyncio
import sys
import threading

import redis
import redis.asyncio
from redis.backoff import NoBackoff
from redis.retry import Retry

HOST, PORT, PROTOCOL = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])


def key(name):
    return "{py}:" + name


def line(step, value):
    print(f"{step}: {value!r}", flush=True)


def error_of(call):
    try:
        return call()
    except redis.RedisError as error:
        return f"{type(error).__name__}: {error}"


def open_client(**options):
    return redis.Redis(host=HOST, port=PORT, protocol=PROTOCOL, client_name="py", **options)


def connection(client):
    line("ping", client.ping())
    line("name", client.client_getname())
    line("echo", client.echo(b"\x00\r\n\xff"))
    line("is in the list", [each["name"] for each in client.client_list() if each["name"] == "py"])
    line("user", client.acl_whoami())
    line("unknown", error_of(lambda: client.execute_command("NOSUCH", "a", "b")))
    line("arity", error_of(lambda: client.execute_command("GET")))
    line("database", error_of(lambda: client.select(99)))
    sections = client.info()
    line("numbers of INFO", [type(sections[name]).__name__ for name in ("uptime_in_seconds", "used_memory", "role")])
    line("config", client.config_get("maxmemory-policy"))
    line("config set", client.config_set("maxmemory-policy", "allkeys-lru"))
    line("config", client.config_get("maxmemory-policy"))
    client.config_set("maxmemory-policy", "noeviction")


def strings(client):
    a, b, c = key("a"), key("b"), key("c")
    line("set", [client.set(a, "1"), client.set(a, "2", nx=True), client.set(b, "2", xx=True)])
    line("set get", [client.set(a, b"\xff\x00", get=True), client.get(a), client.get(b)])
    line("mset", [client.mset({a: 1, b: "two", c: b"3"}), client.mget([a, b, key("none"), c])])
    line("msetnx", client.msetnx({c: 1, key("d"): 2}))
    line("increments", [client.incr(a), client.incrby(a, 40), client.decr(a), client.incrbyfloat(a, 0.5)])
    line("not a number", error_of(lambda: client.incr(b)))
    line("ranges", [client.append(b, "-three"), client.getrange(b, -5, -1), client.setrange(b, 10, "x"), client.get(b)])
    line("expiring", [client.set(c, 1, px=90_000), 0 < client.pttl(c) <= 90_000, client.persist(c), client.ttl(c)])
    line("getex", [client.getex(c, ex=100), client.ttl(c) > 90, client.getdel(c), client.exists(a, b, c)])
    line("wrong type", error_of(lambda: client.lpush(a, 1)))
    big = bytes(index * 7 % 256 for index in range(5_000_011))
    line("5 MB", [client.set(key("big"), big), client.strlen(key("big")), client.get(key("big")) == big])
    line("deleted", [client.delete(key("big"), a, b), client.unlink(c)])


def collections(client):
    h, l, s, t, z, y = (key(name) for name in "hlstzy")
    line("hset", [client.hset(h, mapping={"one": 1, "two": b"\x00", "three": 3.5}), client.hget(h, "two")])
    line("hgetall", sorted(client.hgetall(h).items()))
    line("hash", [client.hincrby(h, "one", 5), client.hincrbyfloat(h, "three", 0.25), client.hmget(h, "one", "none")])
    line("hscan", sorted(client.hscan_iter(h, match="t*")))
    line("hash less", [client.hdel(h, "one", "none"), client.hlen(h), client.hexists(h, "one"), client.hsetnx(h, "two", 1)])
    line("push", [client.rpush(l, *range(10)), client.lpush(l, "x"), client.lrange(l, 0, -1)])
    line("list", [client.lpos(l, "3"), client.linsert(l, "before", "3", "y"), client.lrem(l, 0, "y"), client.lindex(l, -2)])
    line("pops", [client.lpop(l, 2), client.rpop(l), client.lmove(l, key("m"), "LEFT", "RIGHT"), client.lmpop(1, l, direction="RIGHT", count=2)])
    line("blocked pop", [client.blpop([key("none"), l], timeout=1), client.brpop(key("none"), timeout=0.05)])
    line("ltrim", [client.ltrim(l, 1, -1), client.llen(l), error_of(lambda: client.lset(l, 99, 1))])
    line("sadd", [client.sadd(s, *"abcdef"), client.sadd(t, *"efgh"), client.scard(s), client.sismember(s, "a")])
    line("sets", [sorted(each) for each in (client.sinter(s, t), client.sunion(s, t), client.sdiff(s, t), client.sscan_iter(s))])
    line("set", [client.smismember(s, ["a", "z"]), client.smove(s, t, "a"), client.sintercard(2, [s, t]), client.srem(t, "a", "q")])
    line("zadd", [client.zadd(z, {"a": 1, "b": 2.5, "c": -1e300, "d": float("inf")}), client.zadd(z, {"a": 5}, gt=True, ch=True)])
    line("zadd incr", [client.zadd(z, {"b": 1.25}, incr=True), client.zincrby(z, 0.1, "a"), client.zscore(z, "c")])
    line("zrange", [client.zrange(z, 0, -1, withscores=True), client.zrevrange(z, 0, 1), client.zrangebyscore(z, "(1", "+inf", start=0, num=2)])
    line("zrank", [client.zrank(z, "b"), client.zrank(z, "none"), client.zmscore(z, ["a", "none"]), client.zcount(z, "-inf", 10)])
    line("zstore", [client.zadd(y, {"a": 1, "q": 2}), client.zunionstore(key("u"), {z: 2, y: 3}, aggregate="MAX"), client.zrange(key("u"), 0, -1, withscores=True)])
    line("zinter", [client.zinter([z, y], withscores=True), client.zdiff([y, z]), client.zlexcount(y, "-", "+")])
    line("zpop", [client.zpopmin(z), client.zpopmax(z, 2), client.bzpopmin(z, timeout=1), client.zmpop(1, [y], min=True)])
    line("zscan", sorted(client.zscan_iter(key("u"))))


def keys(client):
    names = [key(f"k{number}") for number in range(300)]
    client.mset({name: number for number, name in enumerate(names)})
    line("scan", sorted(client.scan_iter(match=key("k*"), count=17)) == sorted(name.encode() for name in names))
    line("keys", sorted(client.keys(key("k1?"))))
    line("types", [client.type(names[0]), client.type(key("h")), client.type(key("none"))])
    line("rename", [client.rename(names[0], key("r")), client.renamenx(names[1], key("r")), client.copy(key("r"), key("r2"))])
    line("no such key", error_of(lambda: client.rename(key("none"), key("r"))))
    line("expire", [client.expire(names[2], 100), client.expire(names[2], 50, gt=True), client.expireat(names[3], 1), client.exists(names[3])])
    line("touch", [client.touch(names[4], key("none")), client.object("encoding", names[4])])
    line("deleted", client.delete(*names))


def transactions(client):
    p = key("p")
    with client.pipeline() as pipe:
        line("multi", pipe.set(p, 1).incr(p).get(p).lpush(key("pl"), 1, 2).lrange(key("pl"), 0, -1).execute())
    with client.pipeline() as pipe:
        pipe.set(p, "word").incr(p).get(p)
        line("an error in it", [str(each) for each in pipe.execute(raise_on_error=False)])
    with client.pipeline(transaction=False) as pipe:
        for number in range(1_000):
            pipe.set(f"{p}{number}", number).get(f"{p}{number}")
        replies = pipe.execute()
        line("2,000 in a row", [len(replies), replies[::2] == [True] * 1_000, sum(int(each) for each in replies[1::2])])
    with client.pipeline() as pipe:
        pipe.watch(p)
        client.set(p, "changed")
        pipe.multi()
        pipe.set(p, "lost")
        line("watched", [error_of(pipe.execute), client.get(p)])

    def keep(pipe):
        pipe.get(p)
        pipe.multi()
        pipe.set(p, "kept")

    line("by a function", client.transaction(keep, p))
    line("in it", client.get(p))


def messages(client):
    with client.pubsub() as channel:
        channel.subscribe("{py}news", "{py}more")
        channel.psubscribe("{py}n*")
        taken = [channel.get_message(timeout=60) for _ in range(3)]
        line("receivers", client.publish("{py}news", b"\x01\xff"))
        taken += [channel.get_message(timeout=60) for _ in range(2)]
        channel.unsubscribe("{py}more")
        taken.append(channel.get_message(timeout=60))
        for each in taken:
            line("message", each)
        line("channels", [sorted(client.pubsub_channels("{py}*")), client.pubsub_numsub("{py}news"), client.pubsub_numpat()])
        channel.ping()
        line("pong", channel.get_message(timeout=60))


def many_threads(client):
    n = key("n")

    def add():
        for _ in range(100):
            client.incr(n)
            client.rpush(key("q"), "job")

    def take(taken):
        while item := client.blpop(key("q"), timeout=60):
            if item[1] == b"end":
                return
            taken.append(item)

    taken = []
    takers = [threading.Thread(target=take, args=(taken,)) for _ in range(4)]
    adders = [threading.Thread(target=add) for _ in range(8)]
    for thread in takers + adders:
        thread.start()
    for thread in adders:
        thread.join()
    client.rpush(key("q"), *["end"] * 4)
    for thread in takers:
        thread.join()
    line("8 threads add, 4 take", [client.get(n), len(taken), client.llen(key("q"))])


async def many_tasks():
    async with redis.asyncio.Redis(host=HOST, port=PORT, protocol=PROTOCOL, max_connections=50) as client:
        await asyncio.gather(*(client.set(key(f"t{number}"), number) for number in range(50)))
        replies = await asyncio.gather(*(client.get(key(f"t{number}")) for number in range(50)))
        line("50 tasks", sum(int(each) for each in replies))


def users(client):
    line("user", client.acl_setuser("py", enabled=True, passwords=["+secret"], keys=["{py}*"], commands=["+get", "+ping"]))
    other = redis.Redis(host=HOST, port=PORT, protocol=PROTOCOL, username="py", password="secret")
    line("may", [other.ping(), other.get(key("none"))])
    line("may not", [error_of(lambda: other.set(key("a"), 1)), error_of(lambda: other.get("elsewhere"))])
    once = Retry(NoBackoff(), 0)
    wrong = redis.Redis(host=HOST, port=PORT, protocol=PROTOCOL, username="py", password="guess", retry=once)
    line("wrong password", error_of(wrong.ping))
    line("deleted", client.acl_deluser("py"))


def main():
    client = open_client()
    client.flushall()
    for part in (connection, strings, collections, keys, transactions, messages, many_threads, users):
        line("part", part.__name__)
        part(client)
    asyncio.run(many_tasks())
    text = open_client(decode_responses=True)
    text.hset(key("text"), "gr\u00fc\u00dfe", "v\u00f6lker")
    line("text", text.hgetall(key("text")))
    client.flushall()
    line("empty", client.dbsize())


main()
