package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	sessionTimeout   = 6 * time.Second
	staticTimeout    = 30 * time.Second
	rebalanceTimeout = 7 * time.Second
	heartbeat        = 500 * time.Millisecond
	metadataAge      = 2 * time.Second
	pollFor          = 200 * time.Millisecond
	batch            = 100
)

var balancers = map[string]kgo.GroupBalancer{
	"range": kgo.RangeBalancer(), "roundrobin": kgo.RoundRobinBalancer(),
	"sticky": kgo.StickyBalancer(), "cooperative-sticky": kgo.CooperativeStickyBalancer(),
	byTheBroker: kgo.RangeBalancer(),
}

// The strategy of members that leave the assignment to the broker (KIP-848). The balancer names its assignor.
const byTheBroker = "consumer"

// Allows the protocol of KIP-848, which franz-go does not use by itself.
const optIn = "opt_in_kafka_next_gen_balancer_beta"

// Partitions of the one topic, as words for a line of output.
func words(partitions map[string][]int32) string {
	var text []string
	for _, numbers := range partitions {
		for _, number := range numbers {
			text = append(text, strconv.Itoa(int(number)))
		}
	}
	return strings.Join(text, " ")
}

// A group member as in tests/clients/members: processes, then commits; a rebalance waits meanwhile.
func member(bootstrap, group, topic, strategy, instance string) error {
	told := func(word string) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
			fmt.Println(word, words(partitions))
		}
	}
	options := []kgo.Opt{
		kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.Balancers(balancers[strategy]),
		kgo.SessionTimeout(sessionTimeout), kgo.RebalanceTimeout(rebalanceTimeout), kgo.HeartbeatInterval(heartbeat),
		kgo.MetadataMaxAge(metadataAge), kgo.MetadataMinAge(metadataAge / 2),
		kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.OnPartitionsAssigned(told("assigned")), kgo.OnPartitionsRevoked(told("revoked")), kgo.OnPartitionsLost(told("lost")),
	}
	if instance != "" {
		options = append(options, kgo.InstanceID(instance), kgo.SessionTimeout(staticTimeout), kgo.RebalanceTimeout(staticTimeout))
	}
	if strategy == byTheBroker {
		options = append(options, kgo.WithContext(context.WithValue(context.Background(), optIn, true)))
	}
	client, err := newClient(bootstrap, options...)
	if err != nil {
		return err
	}
	ending := make(chan os.Signal, 1)
	signal.Notify(ending, syscall.SIGTERM)
	for {
		select {
		case <-ending:
			client.CloseAllowingRebalance()
			fmt.Println("closed")
			return nil
		default:
			if err := step(client); err != nil {
				return err
			}
		}
	}
}

func step(client *kgo.Client) error {
	defer client.AllowRebalance()
	deadline, cancel := context.WithTimeout(context.Background(), pollFor)
	defer cancel()
	fetches := client.PollRecords(deadline, batch)
	for _, failed := range fetches.Errors() {
		if errors.Is(failed.Err, context.DeadlineExceeded) {
			continue
		}
		if errors.Is(failed.Err, kerr.FencedInstanceID) {
			fmt.Println("error FENCED_INSTANCE_ID")
			return failed.Err
		}
		fmt.Println("error", failed.Err)
	}
	records := fetches.Records()
	if len(records) == 0 {
		return nil
	}
	var lines strings.Builder
	for _, record := range records {
		fmt.Fprintf(&lines, "record %d %d\n", record.Partition, record.Offset)
	}
	os.Stdout.WriteString(lines.String())
	if err := client.CommitRecords(context.Background(), records...); err != nil {
		fmt.Println("commit-failed", err)
	}
	return nil
}
