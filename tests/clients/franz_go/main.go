// Writes or reads the records of tests/clients/workload.py with franz-go, as JSON lines on standard input or output.
//
//	franz_go produce BOOTSTRAP TOPIC CODEC            < lines
//	franz_go consume BOOTSTRAP TOPIC PARTITIONS COUNT > lines
//	franz_go member BOOTSTRAP GROUP TOPIC STRATEGY [--instance ID]   (member.go)
//	franz_go controlled BOOTSTRAP URL TOKEN   (controlled.go)
//	franz_go watched BOOTSTRAP URL   (watched.go)
//
// $FRANZ_GO_SECURITY says how connections are secured (security.go).
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// A header's name and its value, nil for null.
type header struct {
	Key   string  `json:"key"`
	Value *[]byte `json:"value"`
}

type record struct {
	Partition int32    `json:"partition"`
	Timestamp int64    `json:"timestamp"`
	Key       *[]byte  `json:"key"`
	Value     *[]byte  `json:"value"`
	Headers   []header `json:"headers"`
}

func bytesOf(value *[]byte) []byte {
	if value == nil {
		return nil
	}
	if *value == nil {
		return []byte{}
	}
	return *value
}

func pointer(value []byte) *[]byte {
	if value == nil {
		return nil
	}
	return &value
}

// A client whose connections are secured as security.go says.
func newClient(bootstrap string, options ...kgo.Opt) (*kgo.Client, error) {
	secured, err := securityOptions()
	if err != nil {
		return nil, err
	}
	return kgo.NewClient(append(append(options, kgo.SeedBrokers(strings.Split(bootstrap, ",")...)), secured...)...)
}

func produce(bootstrap, topic, codec string) error {
	codecs := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	client, err := newClient(
		bootstrap, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(20*time.Millisecond),
		kgo.ProducerBatchCompression(codecs[codec]), kgo.MaxBufferedRecords(1_000_000), kgo.AllowAutoTopicCreation(),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	var failure error
	lines := json.NewDecoder(bufio.NewReaderSize(os.Stdin, 1<<20))
	for {
		var line record
		if err := lines.Decode(&line); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return err
		}
		message := &kgo.Record{
			Topic: topic, Partition: line.Partition, Timestamp: time.UnixMilli(line.Timestamp),
			Key: bytesOf(line.Key), Value: bytesOf(line.Value),
		}
		for _, h := range line.Headers {
			message.Headers = append(message.Headers, kgo.RecordHeader{Key: h.Key, Value: bytesOf(h.Value)})
		}
		client.Produce(context.Background(), message, func(_ *kgo.Record, err error) {
			if err != nil {
				failure = err
			}
		})
	}
	if err := client.Flush(context.Background()); err != nil {
		return err
	}
	return failure
}

func consume(bootstrap, topic string, partitions, count int) error {
	offsets := map[int32]kgo.Offset{}
	for partition := range partitions {
		offsets[int32(partition)] = kgo.NewOffset().AtStart()
	}
	client, err := newClient(bootstrap, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: offsets}))
	if err != nil {
		return err
	}
	defer client.Close()
	out := bufio.NewWriterSize(os.Stdout, 1<<20)
	defer out.Flush()
	lines := json.NewEncoder(out)
	deadline, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	for read := 0; read < count; {
		fetches := client.PollFetches(deadline)
		if err := fetches.Err0(); err != nil {
			return fmt.Errorf("after %d of %d records: %w", read, count, err)
		}
		if errs := fetches.Errors(); len(errs) > 0 {
			return errs[0].Err
		}
		for _, r := range fetches.Records() {
			line := record{Partition: r.Partition, Timestamp: r.Timestamp.UnixMilli(), Key: pointer(r.Key), Value: pointer(r.Value)}
			for _, h := range r.Headers {
				line.Headers = append(line.Headers, header{h.Key, pointer(h.Value)})
			}
			if err := lines.Encode(line); err != nil {
				return err
			}
			read++
		}
	}
	return nil
}

func run(args []string) error {
	switch {
	case len(args) == 4 && args[0] == "produce":
		return produce(args[1], args[2], args[3])
	case len(args) == 4 && args[0] == "controlled":
		return controlled(args[1], args[2], args[3])
	case len(args) == 3 && args[0] == "watched":
		return watched(args[1], args[2])
	case len(args) == 5 && args[0] == "consume":
		partitions, _ := strconv.Atoi(args[3])
		count, _ := strconv.Atoi(args[4])
		return consume(args[1], args[2], partitions, count)
	case len(args) == 5 && args[0] == "member":
		return member(args[1], args[2], args[3], args[4], "")
	case len(args) == 7 && args[0] == "member":
		return member(args[1], args[2], args[3], args[4], args[6])
	}
	return errors.New("produce BOOTSTRAP TOPIC CODEC | consume BOOTSTRAP TOPIC PARTITIONS COUNT | member BOOTSTRAP GROUP TOPIC STRATEGY [--instance ID]")
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
