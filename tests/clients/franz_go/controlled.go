package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// The control port of a broker: odradek serve --test-control.
type control struct{ url, token string }

func (c control) ask(method, path, document string) (string, error) {
	request, err := http.NewRequest(method, c.url+path, strings.NewReader(document))
	if err != nil {
		return "", err
	}
	request.Header.Set("Authorization", "Bearer "+c.token)
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode >= 300 {
		err = fmt.Errorf("%s: %s", answer.Status, body)
	}
	return string(body), err
}

// A service that is tested with faults: its first record is written, but the connection ends without an answer.
func controlled(bootstrap, url, token string) error {
	broker := control{url, token}
	fault := `{"api": "Produce", "topic": "orders", "nth": 1, "close": "after"}`
	if _, err := broker.ask("POST", "/faults", fault); err != nil {
		return err
	}
	client, err := newClient(bootstrap, kgo.AllowAutoTopicCreation())
	if err != nil {
		return err
	}
	defer client.Close()
	deadline, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	record := &kgo.Record{Topic: "orders", Value: []byte("an order")}
	if err := client.ProduceSync(deadline, record).FirstErr(); err != nil {
		return err
	}
	fmt.Println("offset", record.Offset)
	for _, what := range []string{"lost", "repeated"} {
		request, err := broker.ask("POST", "/requests/wait", `{"api": "Produce", "answered": true}`)
		if err != nil {
			return err
		}
		fmt.Println(what, strings.Contains(request, `"ErrorCode": 0`))
	}
	_, err = broker.ask("GET", "/check", "")
	return err
}
