package kafka

import (
	"cmp"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/topic/txn"
)

// ApiVersions: versions 0 to 4.
//
// The answer is the table of requests that the server supports. An unsupported version gets
// an answer in version 0, with UNSUPPORTED_VERSION and the table, so that the client can
// choose another.
//
//   - 3: the client's name and version; with characters other than letters, digits, "." and
//     "-" they get INVALID_REQUEST. The feature transaction.version, which is in use once all nodes of the
//     cluster support it.
//   - Not supported: 5, with the cluster and node that the client expects.
func (s *Server) apiVersions(c *call, r *kmsg.ApiVersionsRequest) answer {
	if r.Version < 3 {
		return respond(s.announce(r.Version, 0))
	}
	if !validSoftware(r.ClientSoftwareName) || !validSoftware(r.ClientSoftwareVersion) {
		response := r.ResponseKind().(*kmsg.ApiVersionsResponse)
		response.ErrorCode = kerr.InvalidRequest.Code
		return respond(response)
	}
	c.session.software = r.ClientSoftwareName + " " + r.ClientSoftwareVersion
	return respond(s.announce(r.Version, 0))
}

// announce returns the supported requests.
func (s *Server) announce(version, code int16) *kmsg.ApiVersionsResponse {
	response := kmsg.NewPtrApiVersionsResponse()
	response.Version, response.ErrorCode = version, code
	for _, kind := range s.kinds {
		key := kmsg.NewApiVersionsResponseApiKey()
		key.ApiKey, key.MinVersion, key.MaxVersion = kind.key, kind.min, kind.max
		response.ApiKeys = append(response.ApiKeys, key)
	}
	s.announceFeatures(response)
	slices.SortFunc(response.ApiKeys, func(a, b kmsg.ApiVersionsResponseApiKey) int { return cmp.Compare(a.ApiKey, b.ApiKey) })
	return response
}

// transactionVersion is the feature by which clients learn which version of transactions to use.
const transactionVersion = "transaction.version"

// announceFeatures says which features the server supports, and which are in use: those that all nodes
// of the cluster support. Clients take them from the answer with the highest epoch: 1 when all do.
func (s *Server) announceFeatures(response *kmsg.ApiVersionsResponse) {
	if response.Version < 3 {
		return
	}
	supported := kmsg.ApiVersionsResponseSupportedFeature{Name: transactionVersion, MaxVersion: txn.Version}
	if response.Version < 4 { // clients of Java refuse 0 there
		supported.MinVersion = 1
	}
	response.SupportedFeatures = append(response.SupportedFeatures, supported)
	if response.FinalizedFeaturesEpoch = 0; s.broker.TransactionsVersion() < txn.Version {
		return
	}
	response.FinalizedFeaturesEpoch = 1
	response.FinalizedFeatures = append(response.FinalizedFeatures, kmsg.ApiVersionsResponseFinalizedFeature{
		Name: transactionVersion, MinVersionLevel: txn.Version, MaxVersionLevel: txn.Version,
	})
}

// maxSoftware is the longest name or version of a client.
const maxSoftware = 200

// validSoftware reports whether a client's name or version is valid.
func validSoftware(text string) bool {
	if text == "" || len(text) > maxSoftware || !isAlphanumeric(text[0]) || !isAlphanumeric(text[len(text)-1]) {
		return false
	}
	for i := range len(text) {
		if !isAlphanumeric(text[i]) && text[i] != '.' && text[i] != '-' {
			return false
		}
	}
	return true
}

func isAlphanumeric(b byte) bool {
	return b >= '0' && b <= '9' || b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z'
}
