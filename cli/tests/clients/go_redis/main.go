// What go-redis does with a store, as lines that are equal on every server that speaks Redis's protocol.
//
// `go_redis HOST PORT PROTOCOL`. All keys have one tag, so that a store of several workers has them in one place.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

var ctx = context.Background()

func key(name string) string { return "{go}:" + name }

func line(step string, values ...any) {
	for index, value := range values {
		if err, is := value.(error); is {
			values[index] = "error " + err.Error()
		}
	}
	fmt.Printf("%s: %q\n", step, fmt.Sprint(values...))
}

// One result with its error.
func of[T any](value T, err error) string {
	if err != nil {
		return fmt.Sprintf("<%v>", err)
	}
	return fmt.Sprintf("<%v>", value)
}

func plain(client *redis.Client) {
	line("set", of(client.Set(ctx, key("a"), 1, 0).Result()), of(client.SetNX(ctx, key("a"), 2, 0).Result()), of(client.SetXX(ctx, key("b"), 2, 0).Result()))
	line("get", of(client.Get(ctx, key("a")).Int()), of(client.Get(ctx, key("none")).Result()), of(client.GetSet(ctx, key("a"), "x\x00").Result()))
	line("expiring", of(client.Set(ctx, key("b"), 1, 90*time.Second).Result()), of(client.ExpireGT(ctx, key("b"), time.Second).Result()), client.PTTL(ctx, key("b")).Val() > 80*time.Second)
	line("times", of(client.TTL(ctx, key("a")).Result()), of(client.TTL(ctx, key("none")).Result()), of(client.Persist(ctx, key("b")).Result()))
	line("mset", of(client.MSet(ctx, key("c"), 1, key("d"), "two").Result()), of(client.MGet(ctx, key("c"), key("none"), key("d")).Result()))
	line("increments", of(client.IncrBy(ctx, key("c"), 41).Result()), of(client.IncrByFloat(ctx, key("c"), 1e-3).Result()), of(client.Incr(ctx, key("d")).Result()))
	line("wrong type", of(client.LPush(ctx, key("a"), 1).Result()))
	line("unknown", of(client.Do(ctx, "NOSUCH", 1, 2).Result()))
	big := strings.Repeat("0123456789", 400_000)
	line("4 MB", of(client.Set(ctx, key("big"), big, 0).Result()), client.Get(ctx, key("big")).Val() == big, of(client.Del(ctx, key("big")).Result()))
}

func collections(client *redis.Client) {
	line("hset", of(client.HSet(ctx, key("h"), map[string]any{"one": 1, "two": 2.5}).Result()), of(client.HGetAll(ctx, key("h")).Result()))
	var held struct {
		One int     `redis:"one"`
		Two float64 `redis:"two"`
	}
	line("hash as a struct", client.HGetAll(ctx, key("h")).Scan(&held) == nil, held)
	line("list", of(client.RPush(ctx, key("l"), 1, 2, 3, 4, 5).Result()), of(client.LRange(ctx, key("l"), 1, -2).Result()), of(client.LPopCount(ctx, key("l"), 2).Result()))
	line("moved", of(client.LMove(ctx, key("l"), key("m"), "LEFT", "RIGHT").Result()), of(client.BLMove(ctx, key("none"), key("m"), "LEFT", "LEFT", time.Second).Result()))
	line("sets", of(client.SAdd(ctx, key("s"), "a", "b").Result()), of(client.SMIsMember(ctx, key("s"), "a", "q").Result()), of(client.SInterCard(ctx, 1, key("s"), key("t")).Result()))
	line("zadd", of(client.ZAdd(ctx, key("z"), redis.Z{Score: 1, Member: "a"}, redis.Z{Score: 2.5, Member: "b"}).Result()), of(client.ZAddArgsIncr(ctx, key("z"), redis.ZAddArgs{XX: true, Members: []redis.Z{{Score: 2, Member: "a"}}}).Result()))
	line("zrange", of(client.ZRangeWithScores(ctx, key("z"), 0, -1).Result()), of(client.ZRangeArgs(ctx, redis.ZRangeArgs{Key: key("z"), Start: "(2", Stop: "+inf", ByScore: true}).Result()))
	line("zrank", of(client.ZRankWithScore(ctx, key("z"), "a").Result()), of(client.ZRank(ctx, key("z"), "q").Result()), of(client.ZPopMin(ctx, key("z"), 2).Result()))
	for number := range 500 {
		client.Set(ctx, key("k"+strconv.Itoa(number)), number, 0)
	}
	found := map[string]bool{}
	all := client.Scan(ctx, 0, key("k*"), 11).Iterator()
	for all.Next(ctx) {
		found[all.Val()] = true
	}
	line("scan", len(found), all.Err())
	line("types", of(client.Type(ctx, key("h")).Result()), of(client.Exists(ctx, key("h"), key("h"), key("none")).Result()), of(client.Rename(ctx, key("none"), key("r")).Result()))
}

func transactions(client *redis.Client) {
	replies, err := client.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
		pipe.Set(ctx, key("p"), 1, 0)
		pipe.Incr(ctx, key("p"))
		pipe.LPush(ctx, key("p"), 1)
		return nil
	})
	line("multi", len(replies), err)
	for _, each := range replies {
		line("reply", each.Err(), each.Name())
	}
	pipe := client.Pipeline()
	var taken []*redis.StringCmd
	for number := range 2_000 {
		pipe.Set(ctx, key("k"), number, 0)
		taken = append(taken, pipe.Get(ctx, key("k")))
	}
	_, err = pipe.Exec(ctx)
	sum := 0
	for _, each := range taken {
		number, _ := each.Int()
		sum += number
	}
	line("4,000 in a row", sum, err)
	err = client.Watch(ctx, func(tx *redis.Tx) error {
		client.Set(ctx, key("p"), "changed", 0)
		_, err := tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error { return pipe.Set(ctx, key("p"), "lost", 0).Err() })
		return err
	}, key("p"))
	line("watched", errors.Is(err, redis.TxFailedErr), of(client.Get(ctx, key("p")).Result()))
	var adders sync.WaitGroup
	for range 30 {
		adders.Add(1)
		go func() {
			defer adders.Done()
			for added := 0; added < 20; {
				err := client.Watch(ctx, func(tx *redis.Tx) error {
					number, _ := tx.Get(ctx, key("n")).Int()
					_, err := tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error { return pipe.Set(ctx, key("n"), number+1, 0).Err() })
					return err
				}, key("n"))
				if err == nil {
					added++
				} else if !errors.Is(err, redis.TxFailedErr) {
					line("failed", err)
					return
				}
			}
		}()
	}
	adders.Wait()
	line("30 add with WATCH", of(client.Get(ctx, key("n")).Result()))
}

func messages(client *redis.Client) {
	channel := client.Subscribe(ctx, "{go}a")
	defer channel.Close()
	_ = channel.PSubscribe(ctx, "{go}*")
	for range 2 {
		each, err := channel.Receive(ctx)
		line("subscribed", each, err)
	}
	line("receivers", of(client.Publish(ctx, "{go}a", "hello").Result()), of(client.Publish(ctx, "elsewhere", "").Result()))
	for range 2 {
		each, err := channel.ReceiveMessage(ctx)
		line("message", each, err)
	}
	line("pong", channel.Ping(ctx, "there?"))
	each, err := channel.Receive(ctx)
	line("pong", each, err)
	names := client.PubSubChannels(ctx, "{go}*").Val()
	sort.Strings(names)
	line("channels", names, of(client.PubSubNumSub(ctx, "{go}a").Result()))
	go func() {
		time.Sleep(50 * time.Millisecond)
		client.RPush(ctx, key("job"), "now")
	}()
	line("blocked", of(client.BLPop(ctx, 5*time.Second, key("job")).Result()))
}

func main() {
	protocol, _ := strconv.Atoi(os.Args[3])
	client := redis.NewClient(&redis.Options{Addr: os.Args[1] + ":" + os.Args[2], Protocol: protocol, ClientName: "go"})
	defer client.Close()
	client.FlushAll(ctx)
	line("name", of(client.ClientGetName(ctx).Result()))
	plain(client)
	collections(client)
	transactions(client)
	messages(client)
	client.FlushAll(ctx)
	line("end", of(client.DBSize(ctx).Result()))
}
