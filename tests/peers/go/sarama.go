package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/IBM/sarama"
)

type saramaClient struct {
	servers []string
	config  *sarama.Config
}

func newSarama(servers []string) saramaClient {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Net.MaxOpenRequests = 1
	config.Producer.Idempotent = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Return.Successes = true
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.IsolationLevel = sarama.ReadCommitted
	return saramaClient{servers, config}
}

func (s saramaClient) produce(topic, codec, tag string, count int) error {
	if err := s.config.Producer.Compression.UnmarshalText([]byte(codec)); err != nil {
		return err
	}
	producer, err := sarama.NewSyncProducer(s.servers, s.config)
	if err != nil {
		return err
	}
	defer producer.Close()
	messages := make([]*sarama.ProducerMessage, count)
	for n := range messages {
		messages[n] = &sarama.ProducerMessage{
			Topic: topic, Key: sarama.StringEncoder(key(n)), Value: sarama.StringEncoder(value(tag, n)),
			Headers: []sarama.RecordHeader{
				{Key: []byte("number"), Value: []byte(strconv.Itoa(n))}, {Key: []byte("empty"), Value: []byte{}},
			},
		}
	}
	return producer.SendMessages(messages)
}

// A member counts its partitions and prints what comes on them.
type member struct {
	number int
	tally  *tally
}

func (m member) claims(session sarama.ConsumerGroupSession) int {
	count := 0
	for _, partitions := range session.Claims() {
		count += len(partitions)
	}
	return count
}

func (m member) Setup(session sarama.ConsumerGroupSession) error {
	m.tally.owns(m.number, m.claims(session))
	return nil
}

func (m member) Cleanup(session sarama.ConsumerGroupSession) error {
	m.tally.owns(m.number, -m.claims(session))
	session.Commit()
	return nil
}

func (m member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, ok := <-claim.Messages():
			if !ok {
				return nil
			}
			headers := [][2]string{}
			for _, header := range message.Headers {
				headers = append(headers, [2]string{string(header.Key), string(header.Value)})
			}
			session.MarkMessage(message, "")
			m.tally.record(string(message.Key), string(message.Value), headers)
		case <-session.Context().Done():
			return nil
		}
	}
}

func (s saramaClient) consume(topic, group string, count int, assigned func()) error {
	tally := newTally(count, assigned)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan error, 2)
	for number := range 2 {
		consumers, err := sarama.NewConsumerGroup(s.servers, group, s.config)
		if err != nil {
			return err
		}
		go func() {
			var err error
			for err == nil && ctx.Err() == nil {
				err = consumers.Consume(ctx, []string{topic}, member{number, tally})
			}
			if errors.Is(err, context.Canceled) {
				err = nil
			}
			ended <- errors.Join(err, consumers.Close())
		}()
	}
	select {
	case <-tally.done:
	case err := <-ended:
		return fmt.Errorf("a member ended early: %w", err)
	}
	cancel()
	return errors.Join(<-ended, <-ended)
}

func (s saramaClient) admin(topic string) (map[string]any, error) {
	admin, err := sarama.NewClusterAdmin(s.servers, s.config)
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	retention, size := "3600000", "2000000"
	wanted := &sarama.TopicDetail{
		NumPartitions: 2, ReplicationFactor: 1, ConfigEntries: map[string]*string{"retention.ms": &retention},
	}
	if err := admin.CreateTopic(topic, wanted, false); err != nil {
		return nil, err
	}
	if err := admin.CreateTopic(topic, wanted, false); !errors.Is(err, sarama.ErrTopicAlreadyExists) {
		return nil, fmt.Errorf("a topic was created twice: %v", err)
	}
	set := map[string]sarama.IncrementalAlterConfigsEntry{
		"max.message.bytes": {Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &size},
	}
	err = errors.Join(
		admin.CreatePartitions(topic, 4, nil, false),
		admin.IncrementalAlterConfig(sarama.TopicResource, topic, set, false),
		s.consume(topic, topic, 100, sending(s, topic)),
	)
	if err != nil {
		return nil, err
	}
	return s.describe(admin, topic)
}

func (s saramaClient) describe(admin sarama.ClusterAdmin, topic string) (map[string]any, error) {
	topics, err1 := admin.DescribeTopics([]string{topic})
	configs, err2 := admin.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: topic})
	committed, err3 := admin.ListConsumerGroupOffsets(topic, map[string][]int32{topic: {0, 1, 2, 3}})
	groups, err4 := admin.ListConsumerGroups()
	described, err5 := admin.DescribeConsumerGroups([]string{topic})
	err6 := admin.DeleteRecords(topic, map[int32]int64{0: 1})
	client, err7 := sarama.NewClient(s.servers, s.config)
	if err := errors.Join(err1, err2, err3, err4, err5, err6, err7); err != nil {
		return nil, err
	}
	defer client.Close()
	start, err1 := client.GetOffset(topic, 0, sarama.OffsetOldest)
	err2 = admin.DeleteConsumerGroup(topic)
	err3 = admin.DeleteTopic(topic)
	after, err4 := admin.ListTopics()
	brokers, _, err5 := admin.DescribeCluster()
	if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
		return nil, err
	}
	answer := map[string]any{
		"partitions": len(topics[0].Partitions), "state": described[0].State, "nodes": len(brokers), "start": start,
	}
	for _, config := range configs {
		if config.Name == "retention.ms" || config.Name == "max.message.bytes" {
			answer[config.Name] = config.Value
		}
	}
	sum := int64(0)
	for _, block := range committed.Blocks[topic] {
		sum += max(block.Offset, 0)
	}
	_, listed := groups[topic]
	_, there := after[topic]
	answer["committed"], answer["listed"], answer["gone"] = sum, listed, !there
	return answer, nil
}

// transact copies with the offsets in the transaction; every third one is aborted first.
func (s saramaClient) transact(source, target, group string, count int) error {
	config := *s.config
	config.Producer.Transaction.ID = group
	producer, err := sarama.NewSyncProducer(s.servers, &config)
	if err != nil {
		return err
	}
	defer producer.Close()
	consumers, err := sarama.NewConsumerGroup(s.servers, group, s.config)
	if err != nil {
		return err
	}
	defer consumers.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	copier := &copier{producer: producer, target: target, group: group, left: count, cancel: cancel}
	if err := consumers.Consume(ctx, []string{source}, copier); err != nil && copier.left > 0 {
		return err
	}
	if copier.left > 0 {
		return fmt.Errorf("%d records were not copied: %w", copier.left, copier.err)
	}
	return nil
}

// A copier takes one claim after the other, so that its transactions do not overlap.
type copier struct {
	producer sarama.SyncProducer
	target   string
	group    string
	left     int
	done     int
	err      error
	cancel   context.CancelFunc
	turn     chan struct{}
}

func (c *copier) Setup(sarama.ConsumerGroupSession) error {
	c.turn = make(chan struct{}, 1)
	return nil
}

func (c *copier) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (c *copier) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	batch := []*sarama.ConsumerMessage{}
	idle := time.NewTicker(200 * time.Millisecond)
	defer idle.Stop()
	for {
		select {
		case message := <-claim.Messages():
			if message != nil {
				batch = append(batch, message)
			}
			if len(batch) < transactionSize {
				continue
			}
		case <-idle.C:
		case <-session.Context().Done():
			return nil
		}
		if len(batch) == 0 {
			continue
		}
		if err := c.copy(batch); err != nil {
			c.err = err
			c.cancel()
			return err
		}
		batch = nil
	}
}

func (c *copier) copy(batch []*sarama.ConsumerMessage) error {
	c.turn <- struct{}{}
	defer func() { <-c.turn }()
	if c.done++; c.done%3 == 0 {
		if err := errors.Join(c.write(batch), c.producer.AbortTxn()); err != nil {
			return err
		}
	}
	if err := errors.Join(c.write(batch), c.producer.CommitTxn()); err != nil {
		return err
	}
	if c.left -= len(batch); c.left == 0 {
		c.cancel()
	}
	return nil
}

func (c *copier) write(batch []*sarama.ConsumerMessage) error {
	if err := c.producer.BeginTxn(); err != nil {
		return err
	}
	messages := make([]*sarama.ProducerMessage, len(batch))
	for n, message := range batch {
		headers := []sarama.RecordHeader{}
		for _, header := range message.Headers {
			headers = append(headers, *header)
		}
		messages[n] = &sarama.ProducerMessage{
			Topic: c.target, Key: sarama.ByteEncoder(message.Key), Value: sarama.ByteEncoder(message.Value),
			Headers: slices.Clone(headers),
		}
	}
	last := batch[len(batch)-1]
	return errors.Join(c.producer.SendMessages(messages), c.producer.AddMessageToTxn(last, c.group, nil))
}
