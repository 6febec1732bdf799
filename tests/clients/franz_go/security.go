package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// How connections are secured: the file that $FRANZ_GO_SECURITY names. What is empty is not used.
type security struct {
	Authority   string `json:"authority"`
	Certificate string `json:"certificate"`
	Mechanism   string `json:"mechanism"`
	Username    string `json:"username"`
	Password    string `json:"password"`
}

func securityOptions() ([]kgo.Opt, error) {
	path := os.Getenv("FRANZ_GO_SECURITY")
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var s security
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, err
	}
	options, err := s.tls()
	if err != nil {
		return nil, err
	}
	switch s.Mechanism {
	case "":
	case "PLAIN":
		options = append(options, kgo.SASL(plain.Auth{User: s.Username, Pass: s.Password}.AsMechanism()))
	case "SCRAM-SHA-256":
		options = append(options, kgo.SASL(scram.Auth{User: s.Username, Pass: s.Password}.AsSha256Mechanism()))
	case "SCRAM-SHA-512":
		options = append(options, kgo.SASL(scram.Auth{User: s.Username, Pass: s.Password}.AsSha512Mechanism()))
	default:
		return nil, fmt.Errorf("no mechanism %s", s.Mechanism)
	}
	return options, nil
}

func (s security) tls() ([]kgo.Opt, error) {
	trusted, err := os.ReadFile(s.Authority)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	if !config.RootCAs.AppendCertsFromPEM(trusted) {
		return nil, errors.New("no certificate of an authority")
	}
	if s.Certificate != "" {
		own, err := tls.LoadX509KeyPair(s.Certificate, s.Certificate)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{own}
	}
	return []kgo.Opt{kgo.DialTLSConfig(config)}, nil
}
