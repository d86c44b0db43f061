// Command peers runs a Go client of Kafka: peers franz-go|sarama VERB SERVERS ...
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"
	"sync"
)

const transactionSize = 100

// A client is a library behind the verbs of peer_program.py.
type client interface {
	produce(topic, codec, tag string, count int) error
	consume(topic, group string, count int, assigned func()) error
	admin(topic string) (map[string]any, error)
	transact(source, target, group string, count int) error
}

func main() {
	log.SetOutput(os.Stderr)
	name, verb, servers, rest := os.Args[1], os.Args[2], strings.Split(os.Args[3], ","), os.Args[4:]
	var peer client = franz{servers}
	if name == "sarama" {
		peer = newSarama(servers)
	}
	if err := run(peer, verb, rest); err != nil {
		log.Fatalf("%s %s: %v", name, verb, err)
	}
}

func run(peer client, verb string, args []string) error {
	switch verb {
	case "produce":
		return peer.produce(args[0], args[1], args[2], number(args[3]))
	case "consume":
		return peer.consume(args[0], args[1], number(args[2]), func() { fmt.Println("assigned") })
	case "transact":
		return peer.transact(args[0], args[1], args[2], number(args[3]))
	case "copy":
		return peer.(franz).copy(args[0], args[1], args[2], number(args[3]), args[4])
	case "member":
		return peer.(franz).member(args[0], args[1], args[2])
	case "admin":
		answer, err := peer.admin(args[0])
		if err != nil {
			return err
		}
		return json.NewEncoder(os.Stdout).Encode(answer)
	}
	return fmt.Errorf("there is no verb %q", verb)
}

func number(text string) int {
	value, err := strconv.Atoi(text)
	if err != nil {
		log.Fatal(err)
	}
	return value
}

// sending gives members something to read once both have work: what is not committed would be read
// again by another.
func sending(peer client, topic string) func() {
	return func() {
		go func() {
			if err := peer.produce(topic, "none", "admin", 100); err != nil {
				log.Fatal(err)
			}
		}()
	}
}

func key(n int) string { return fmt.Sprintf("key-%d", n%17) }

func value(tag string, n int) string {
	return fmt.Sprintf("%s %06d ", tag, n) + strings.Repeat("x", n%50)
}

// A tally prints records and knows when all of them have come, and when both members have work.
type tally struct {
	mutex     sync.Mutex
	owned     [2]int
	assigned  func()
	announced bool
	left      int
	done      chan struct{}
}

func newTally(count int, assigned func()) *tally {
	return &tally{left: count, assigned: assigned, done: make(chan struct{})}
}

func (t *tally) record(key, value string, headers [][2]string) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	line := map[string]any{"key": key, "value": value, "headers": headers}
	if err := json.NewEncoder(os.Stdout).Encode(line); err != nil {
		log.Fatal(err)
	}
	if t.left--; t.left == 0 {
		close(t.done)
	}
}

// owns says how many more partitions a member has than before.
func (t *tally) owns(member, difference int) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.owned[member] += difference
	if !t.announced && t.owned[0] > 0 && t.owned[1] > 0 {
		t.announced = true
		t.assigned()
	}
}
