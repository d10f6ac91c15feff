package auth

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"hash"
	"strings"
)

// scramHashes are the hashes of the SCRAM mechanisms.
var scramHashes = map[string]func() hash.Hash{ScramSHA256: sha256.New, ScramSHA512: sha512.New}

// scram is the server's side of one SCRAM authentication (RFC 5802), without channel binding.
type scram struct {
	hash func() hash.Hash
	// principal is the account that the client claims to be, err why it may not connect.
	principal Principal
	err       error
	keys      ScramKeys
	// header is the client's first message up to its name, first the rest of it.
	header, first string
	// challenge is the server's first message; nonce is that of both sides in it, own the client's part.
	challenge, nonce, own string
}

// beginScram reads the client's first message. The answer to it is the challenge.
func beginScram(accounts Accounts, mechanism string, message []byte) (*scram, error) {
	binding, rest, _ := strings.Cut(string(message), ",")
	identity, first, found := strings.Cut(rest, ",")
	fields := strings.Split(first, ",")
	name, named := strings.CutPrefix(fields[0], "n=")
	if binding != "n" && binding != "y" || !found || !named || len(fields) < 2 {
		return nil, fmt.Errorf("%w: want n,,n=name,r=nonce", ErrMalformed)
	}
	if as, other := strings.CutPrefix(identity, "a="); other && as != name {
		return nil, fmt.Errorf("%w: the authorization identity differs from the name", ErrMalformed)
	}
	nonce, has := strings.CutPrefix(fields[1], "r=")
	if !has || nonce == "" {
		return nil, fmt.Errorf("%w: no nonce", ErrMalformed)
	}
	s := &scram{hash: scramHashes[mechanism], header: binding + "," + identity + ",", first: first, nonce: nonce + rand.Text(), own: nonce}
	s.principal, s.keys, s.err = accounts.Scram(mechanism, strings.NewReplacer("=2C", ",", "=3D", "=").Replace(name))
	s.challenge = fmt.Sprintf("r=%s,s=%s,i=%d", s.nonce, base64.StdEncoding.EncodeToString(s.keys.Salt), s.keys.Iterations)
	return s, nil
}

// finish reads the client's last message and returns the server's, which proves that it knows the
// secret too. The error is ErrProof if the client does not know it.
func (s *scram) finish(message []byte) ([]byte, error) {
	without, encoded, found := strings.Cut(string(message), ",p=")
	proof, err := base64.StdEncoding.DecodeString(encoded)
	nonce, right := strings.CutPrefix(without, "c="+base64.StdEncoding.EncodeToString([]byte(s.header))+",r=")
	// librdkafka before 2.6.1 repeats its part of the nonce. The proof covers the challenge, and so the
	// whole nonce, nevertheless.
	if !found || err != nil || !right || nonce != s.nonce && nonce != s.own+s.nonce {
		return nil, fmt.Errorf("%w: want c=header,r=nonce,p=proof", ErrMalformed)
	}
	all := s.first + "," + s.challenge + "," + without
	key := s.sign(s.keys.StoredKey, all)
	if len(proof) != len(key) {
		return nil, ErrProof
	}
	subtle.XORBytes(key, key, proof)
	hashed := s.hash()
	hashed.Write(key)
	if !hmac.Equal(hashed.Sum(nil), s.keys.StoredKey) {
		return nil, ErrProof
	}
	return []byte("v=" + base64.StdEncoding.EncodeToString(s.sign(s.keys.ServerKey, all))), s.err
}

func (s *scram) sign(key []byte, message string) []byte {
	mac := hmac.New(s.hash, key)
	mac.Write([]byte(message))
	return mac.Sum(nil)
}
