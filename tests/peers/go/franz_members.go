package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"math/rand"
	"os"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

var torn = []byte("aborted ")

// say prints a line of JSON, as tests/system/cluster/group_copier.py does.
func say(what string, value any) {
	if err := json.NewEncoder(os.Stdout).Encode(map[string]any{what: value}); err != nil {
		log.Fatal(err)
	}
}

// membership of the classic protocol gives up only what it must.
func membership(servers []string, group, topic, protocol string, session time.Duration) []kgo.Opt {
	options := []kgo.Opt{
		kgo.SeedBrokers(servers...), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.MetadataMinAge(time.Second), kgo.MetadataMaxAge(2 * time.Second),
		kgo.OnPartitionsAssigned(told("assigned", topic)), kgo.OnPartitionsRevoked(told("revoked", topic)),
		kgo.OnPartitionsLost(told("lost", topic)),
	}
	if protocol == "consumer" {
		return append(options, kgo.Balancers(kgo.StickyBalancer()), kgo.ServerSideBalancer())
	}
	return append(options, kgo.Balancers(kgo.CooperativeStickyBalancer()),
		kgo.SessionTimeout(session), kgo.HeartbeatInterval(500*time.Millisecond))
}

func told(what, topic string) func(context.Context, *kgo.Client, map[string][]int32) {
	return func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
		say(what, append([]int32{}, partitions[topic]...))
	}
}

// copy is a member of a group that copies in transactions until it is killed; a tenth it aborts, and does again.
func (f franz) copy(source, target, name string, size int, protocol string) error {
	options := append(membership(f.servers, source+" copiers", source, protocol, 6*time.Second),
		kgo.TransactionalID(name), kgo.DefaultProduceTopic(target), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.RequireStableFetchOffsets())
	for {
		// An error of End is for good: what comes after it is another session.
		session, err := kgo.NewGroupTransactSession(options...)
		if err != nil {
			return err
		}
		if err = copyInTransactions(session, size); err != nil {
			say("refused", err.Error())
		}
		session.Close()
	}
}

func copyInTransactions(session *kgo.GroupTransactSession, size int) error {
	ctx := context.Background()
	for {
		fetches := session.PollRecords(ctx, size)
		if err := fetches.Err(); err != nil {
			say("refused", err.Error())
			continue
		}
		if fetches.NumRecords() == 0 {
			continue
		}
		if err := session.Begin(); err != nil {
			return fmt.Errorf("begin: %w", err)
		}
		aborts := rand.Intn(10) == 0
		fetches.EachRecord(func(record *kgo.Record) {
			value := record.Value
			if aborts {
				value = torn
			}
			session.Produce(ctx, &kgo.Record{Key: record.Key, Value: value, Partition: record.Partition}, nil)
		})
		if aborts {
			if err := session.Client().Flush(ctx); err != nil {
				return fmt.Errorf("flush: %w", err)
			}
		}
		committed, err := session.End(ctx, kgo.TransactionEndTry(!aborts))
		if err != nil {
			return fmt.Errorf("end: %w", err)
		}
		if committed {
			say("copied", fetches.NumRecords())
		} else {
			say("aborted", fetches.NumRecords())
		}
	}
}

// member reads numbers and commits them, and says so, until its input ends.
func (f franz) member(topic, group, protocol string) error {
	client, err := kgo.NewClient(append(membership(f.servers, group, topic, protocol, 30*time.Second),
		kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll())...)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = os.Stdin.Read(make([]byte, 1))
		cancel()
	}()
	for ctx.Err() == nil {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil && ctx.Err() == nil {
			say("refused", err.Error())
		}
		fetches.EachRecord(func(record *kgo.Record) {
			number, err := strconv.Atoi(string(record.Value))
			if err != nil {
				log.Fatal(err)
			}
			say("read", []int{int(record.Partition), number})
		})
		for fetches.NumRecords() > 0 {
			err := client.CommitUncommittedOffsets(context.Background())
			if err == nil {
				break
			}
			say("refused", err.Error())
		}
		client.AllowRebalance()
	}
	return nil
}
