package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

type franz struct{ servers []string }

func (f franz) client(options ...kgo.Opt) (*kgo.Client, error) {
	login, err := login()
	if err != nil {
		return nil, err
	}
	return kgo.NewClient(append(append(options, login...), kgo.SeedBrokers(f.servers...))...)
}

// login is how to log in, from the environment; nothing where it does not say so.
func login() ([]kgo.Opt, error) {
	protocol := os.Getenv("PEER_PROTOCOL")
	if protocol == "" {
		return nil, nil
	}
	user, password := os.Getenv("PEER_USER"), os.Getenv("PEER_PASSWORD")
	var mechanism sasl.Mechanism
	switch name := os.Getenv("PEER_MECHANISM"); name {
	case "PLAIN":
		mechanism = plain.Auth{User: user, Pass: password}.AsMechanism()
	case "SCRAM-SHA-256":
		mechanism = scram.Auth{User: user, Pass: password}.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		mechanism = scram.Auth{User: user, Pass: password}.AsSha512Mechanism()
	case "OAUTHBEARER":
		mechanism = oauth.Auth{Token: os.Getenv("PEER_TOKEN")}.AsMechanism()
	default:
		return nil, fmt.Errorf("there is no mechanism %q", name)
	}
	options := []kgo.Opt{kgo.SASL(mechanism)}
	if protocol == "SASL_SSL" {
		pem, err := os.ReadFile(os.Getenv("PEER_CA"))
		if err != nil {
			return nil, err
		}
		authorities := x509.NewCertPool()
		authorities.AppendCertsFromPEM(pem)
		options = append(options, kgo.DialTLSConfig(&tls.Config{RootCAs: authorities}))
	}
	return options, nil
}

func (f franz) produce(topic, codec, tag string, count int) error {
	codecs := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	client, err := f.client(kgo.ProducerBatchCompression(codecs[codec]), kgo.DefaultProduceTopic(topic))
	if err != nil {
		return err
	}
	defer client.Close()
	records := make([]*kgo.Record, count)
	for n := range records {
		records[n] = &kgo.Record{Key: []byte(key(n)), Value: []byte(value(tag, n)), Headers: []kgo.RecordHeader{
			{Key: "number", Value: []byte(strconv.Itoa(n))}, {Key: "empty", Value: []byte{}},
		}}
	}
	return client.ProduceSync(context.Background(), records...).FirstErr()
}

func (f franz) consume(topic, group string, count int, assigned func()) error {
	tally := newTally(count, assigned)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	clients := make([]*kgo.Client, 2)
	failed := make(chan error, 2)
	for member := range clients {
		count := func(sign int) func(context.Context, *kgo.Client, map[string][]int32) {
			return func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
				tally.owns(member, sign*len(partitions[topic]))
			}
		}
		client, err := f.client(
			kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
			kgo.OnPartitionsAssigned(count(1)), kgo.OnPartitionsRevoked(count(-1)), kgo.OnPartitionsLost(count(-1)),
		)
		if err != nil {
			return err
		}
		clients[member] = client
		defer client.Close()
		go func() { failed <- f.read(ctx, client, tally) }()
	}
	select {
	case <-tally.done:
	case err := <-failed:
		return err
	}
	for _, client := range clients {
		if err := client.CommitUncommittedOffsets(context.Background()); err != nil {
			return err
		}
	}
	return nil
}

func (f franz) read(ctx context.Context, client *kgo.Client, tally *tally) error {
	for {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err := fetches.Err(); err != nil {
			return err
		}
		fetches.EachRecord(func(record *kgo.Record) {
			headers := [][2]string{}
			for _, header := range record.Headers {
				headers = append(headers, [2]string{header.Key, string(header.Value)})
			}
			tally.record(string(record.Key), string(record.Value), headers)
		})
	}
}

func (f franz) admin(topic string) (map[string]any, error) {
	ctx := context.Background()
	client, err := f.client()
	if err != nil {
		return nil, err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	retention, size := "3600000", "2000000"
	if _, err := admin.CreateTopic(ctx, 2, -1, map[string]*string{"retention.ms": &retention}, topic); err != nil {
		return nil, err
	}
	if _, err := admin.CreateTopic(ctx, 2, -1, nil, topic); !errors.Is(err, kerr.TopicAlreadyExists) {
		return nil, fmt.Errorf("a topic was created twice: %v", err)
	}
	widened, err := admin.CreatePartitions(ctx, 2, topic)
	if err = errors.Join(err, widened.Error()); err != nil {
		return nil, err
	}
	set := []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "max.message.bytes", Value: &size}}
	altered, err := admin.AlterTopicConfigs(ctx, set, topic)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(altered[0].Err, f.consume(topic, topic, 100, sending(f, topic))); err != nil {
		return nil, err
	}
	return f.describe(ctx, admin, topic)
}

func (f franz) describe(ctx context.Context, admin *kadm.Client, topic string) (map[string]any, error) {
	topics, err1 := admin.ListTopics(ctx, topic)
	configs, err2 := admin.DescribeTopicConfigs(ctx, topic)
	committed, err3 := admin.FetchOffsets(ctx, topic)
	groups, err4 := admin.ListGroups(ctx)
	described, err5 := admin.DescribeGroups(ctx, topic)
	before := kadm.Offsets{}
	before.AddOffset(topic, 0, 1, -1)
	_, err6 := admin.DeleteRecords(ctx, before)
	starts, err7 := admin.ListStartOffsets(ctx, topic)
	_, err8 := admin.DeleteGroup(ctx, topic)
	_, err9 := admin.DeleteTopic(ctx, topic)
	after, err10 := admin.ListTopics(ctx)
	brokers, err11 := admin.ListBrokers(ctx)
	if err := errors.Join(err1, err2, err3, err4, err5, err6, err7, err8, err9, err10, err11); err != nil {
		return nil, err
	}
	answer := map[string]any{
		"partitions": len(topics[topic].Partitions), "state": described[topic].State, "nodes": len(brokers),
	}
	for _, config := range configs[0].Configs {
		if config.Key == "retention.ms" || config.Key == "max.message.bytes" {
			answer[config.Key] = config.MaybeValue()
		}
	}
	sum := int64(0)
	committed.Each(func(offset kadm.OffsetResponse) { sum += offset.At })
	start, _ := starts.Lookup(topic, 0)
	_, listed := groups[topic]
	_, there := after[topic]
	answer["committed"], answer["start"], answer["listed"], answer["gone"] = sum, start.Offset, listed, !there
	return answer, nil
}

// transact copies with the offsets in the transaction; every third one is aborted first.
func (f franz) transact(source, target, group string, count int) error {
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(f.servers...), kgo.TransactionalID(group), kgo.DefaultProduceTopic(target),
		kgo.ConsumerGroup(group), kgo.ConsumeTopics(source), kgo.RequireStableFetchOffsets(),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	)
	if err != nil {
		return err
	}
	defer session.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for done, transactions := 0, 1; done < count; transactions++ {
		fetches := session.PollRecords(ctx, transactionSize)
		if err := fetches.Err(); err != nil {
			return err
		}
		if err := session.Begin(); err != nil {
			return err
		}
		copied := 0
		fetches.EachRecord(func(record *kgo.Record) {
			copied++
			session.Produce(ctx, &kgo.Record{Key: record.Key, Value: record.Value, Headers: record.Headers}, nil)
		})
		if err := session.Client().Flush(ctx); err != nil {
			return err
		}
		committed, err := session.End(ctx, kgo.TransactionEndTry(transactions%3 != 0))
		if err != nil {
			return err
		}
		if committed {
			done += copied
		}
	}
	return nil
}
