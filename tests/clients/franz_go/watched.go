package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	orders  = 3
	maxWait = 20 * time.Second
)

// The console of a broker: odradek serve --metrics-port.
type console struct{ url string }

// What a test looks at; each view has some of these fields.
type row struct {
	State, Why          string
	Members             int
	CommittedPartitions int `json:"committed_partitions"`
	Lag                 *int
	LeftMs              int64  `json:"left_ms"`
	OpenMs              *int64 `json:"open_ms"`
	ClientID            string `json:"client_id"`
	Partitions          []string
	Clients             []struct {
		ClientID string `json:"client_id"`
	}
}

// A view has rows, or purgatories that have them.
type view struct {
	Rows        []row
	Purgatories []view
}

func (c console) read(path string) (shown view, err error) {
	answer, err := http.Get(c.url + path)
	if err != nil {
		return shown, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return shown, fmt.Errorf("%s: %s", path, answer.Status)
	}
	err = json.NewDecoder(answer.Body).Decode(&shown)
	for _, purgatory := range shown.Purgatories {
		shown.Rows = append(shown.Rows, purgatory.Rows...)
	}
	return shown, err
}

// Returns the first row that is wanted, as soon as there is one.
func (c console) until(path string, isWanted func(row) bool) (row, error) {
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		shown, err := c.read(path)
		if err != nil {
			return row{}, err
		}
		for _, each := range shown.Rows {
			if isWanted(each) {
				return each, nil
			}
		}
		if time.Now().After(deadline) {
			return row{}, fmt.Errorf("%s shows %+v", path, shown.Rows)
		}
	}
}

// A service whose test reads the console's JSON: three orders are billed and paid. Prints a line for each thing that the
// console shows in time, and fails at the first one that it does not show.
func watched(bootstrap, url string) error {
	deadline, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	producer, err := newClient(bootstrap, kgo.AllowAutoTopicCreation())
	if err != nil {
		return err
	}
	defer producer.Close()
	for number := range orders {
		order := &kgo.Record{Topic: "orders", Value: fmt.Appendf(nil, "order %d", number)}
		if err := producer.ProduceSync(deadline, order).FirstErr(); err != nil {
			return err
		}
	}
	consumer, err := newClient(
		bootstrap, kgo.ClientID("billing-1"), kgo.ConsumerGroup("billing"), kgo.ConsumeTopics("orders"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(), kgo.FetchMaxWait(maxWait),
	)
	if err != nil {
		return err
	}
	defer consumer.Close()
	for billed := 0; billed < orders; {
		fetches := consumer.PollFetches(deadline)
		if err := fetches.Err(); err != nil {
			return err
		}
		billed += fetches.NumRecords()
	}
	if err := consumer.CommitUncommittedOffsets(deadline); err != nil {
		return err
	}
	broker := console{url}
	if err := broker.consumerWaits(); err != nil {
		return err
	}
	if err := broker.groupHasNoLag(); err != nil {
		return err
	}
	return broker.transactionIsOpenUntilCommitted(deadline, bootstrap)
}

func (c console) consumerWaits() error {
	fetch, err := c.until("/api/waiting", func(each row) bool {
		return len(each.Clients) > 0 && each.Clients[0].ClientID == "billing-1" &&
			strings.HasSuffix(each.Why, "orders-0 from 3, which ends at 3")
	})
	if err == nil {
		isInTime := fetch.LeftMs >= 0 && fetch.LeftMs <= maxWait.Milliseconds()
		fmt.Println("the fetch of orders waits, and not too long:", isInTime)
	}
	return err
}

func (c console) groupHasNoLag() error {
	group, err := c.until("/api/groups?search=billing", func(each row) bool {
		return each.State == "Stable" && each.CommittedPartitions == 1 && each.Lag != nil && *each.Lag == 0
	})
	if err != nil {
		return err
	}
	members, err := c.read("/api/members?name=billing")
	if err == nil && len(members.Rows) > 0 {
		fmt.Printf("members %d, %s\n", group.Members, members.Rows[0].ClientID)
	}
	return err
}

func (c console) transactionIsOpenUntilCommitted(deadline context.Context, bootstrap string) error {
	producer, err := newClient(bootstrap, kgo.TransactionalID("payments"), kgo.AllowAutoTopicCreation())
	if err != nil {
		return err
	}
	defer producer.Close()
	if err := producer.BeginTransaction(); err != nil {
		return err
	}
	invoice := &kgo.Record{Topic: "invoices", Value: []byte("an invoice")}
	if err := producer.ProduceSync(deadline, invoice).FirstErr(); err != nil {
		return err
	}
	path := "/api/transactions?search=payments"
	open, err := c.until(path, func(each row) bool { return each.OpenMs != nil })
	if err != nil {
		return err
	}
	fmt.Printf("%s %q\n", open.State, open.Partitions)
	if err := producer.EndTransaction(deadline, kgo.TryCommit); err != nil {
		return err
	}
	done, err := c.until(path, func(each row) bool { return each.OpenMs == nil })
	if err == nil {
		fmt.Printf("%s %q\n", done.State, done.Partitions)
	}
	return err
}
