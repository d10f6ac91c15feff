package clients

import (
	"context"
	"errors"
	"testing"

	"github.com/IBM/sarama"
	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/segmentio/kafka-go/sasl/scram"
)

// adminSecret is the admin token of servers with accounts.
const adminSecret = "the-admin-token-of-the-clients"

// Clients authenticate with a token by each mechanism that they have, and learn that another is wrong.
func TestSASL(t *testing.T) {
	t.Setenv("SLUICE_ACCESS_ADMIN_TOKEN", adminSecret)
	await, _, addr := startNode(t)
	await()
	t.Run("sarama", func(t *testing.T) {
		for _, version := range []int16{sarama.SASLHandshakeV0, sarama.SASLHandshakeV1} {
			must(sarama.NewClient([]string{addr}, saramaPlain(adminSecret, version)))(t).Close()
			if _, err := sarama.NewClient([]string{addr}, saramaPlain("wrong", version)); err == nil {
				t.Errorf("handshake %d: a wrong secret is accepted", version)
			}
		}
		for _, secret := range []string{adminSecret, "wrong"} {
			config := saramaPlain(secret, sarama.SASLHandshakeV1)
			config.Net.SASL.Mechanism, config.Net.SASL.TokenProvider = sarama.SASLTypeOAuth, bearer(secret)
			client, err := sarama.NewClient([]string{addr}, config)
			if (err == nil) != (secret == adminSecret) {
				t.Errorf("OAUTHBEARER with %s: %v", secret, err)
			}
			if err == nil {
				client.Close()
			}
		}
	})
	t.Run("kafka-go", func(t *testing.T) {
		for _, secret := range []string{adminSecret, "wrong"} {
			for _, mechanism := range []sasl.Mechanism{
				plain.Mechanism{Username: "admin", Password: secret}, must(scram.Mechanism(scram.SHA256, "admin", secret))(t), must(scram.Mechanism(scram.SHA512, "admin", secret))(t),
			} {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				conn, err := (&kafka.Dialer{SASLMechanism: mechanism}).DialContext(ctx, "tcp", addr)
				if err == nil {
					_, err = conn.ReadPartitions()
					conn.Close()
				}
				cancel()
				if secret == adminSecret && err != nil || secret != adminSecret && !errors.Is(err, kafka.SASLAuthenticationFailed) {
					t.Errorf("%s with %s: %v", mechanism.Name(), secret, err)
				}
			}
		}
	})
	t.Setenv("BROKER", addr)
	t.Setenv("SECRET", adminSecret)
	t.Run("python", func(t *testing.T) { run(t, "python", "/usr/bin/python3", "sasl.py") })
	t.Run("kafkajs", func(t *testing.T) { runKafkaJS(t, "sasl.test.js") })
}

// bearer provides a token.
type bearer string

// Token implements sarama.AccessTokenProvider.
func (b bearer) Token() (*sarama.AccessToken, error) {
	return &sarama.AccessToken{Token: string(b)}, nil
}

// saramaPlain returns sarama's configuration for PLAIN.
func saramaPlain(secret string, handshake int16) *sarama.Config {
	config := saramaConfig(sarama.V3_0_0_0)
	config.Metadata.Retry.Max = 0
	config.ApiVersionsRequest = handshake == sarama.SASLHandshakeV1
	config.Net.SASL.Enable, config.Net.SASL.Version = true, handshake
	config.Net.SASL.User, config.Net.SASL.Password = "admin", secret
	return config
}
