package kafka

import (
	"cmp"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ApiVersions: versions 0 to 4.
//
// The answer is exactly the table of requests: what is not served is not
// announced. A version that is not served is answered in version 0 with
// UNSUPPORTED_VERSION and the table, so that the client can choose another.
//
//   - 3: the client says its name and version; those that are not of letters,
//     digits, "." and "-" get INVALID_REQUEST.
//   - 5: would tell the cluster and node that the client expects.
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

// announce returns what is served.
func (s *Server) announce(version, code int16) *kmsg.ApiVersionsResponse {
	response := kmsg.NewPtrApiVersionsResponse()
	response.Version, response.ErrorCode = version, code
	for _, kind := range s.kinds {
		key := kmsg.NewApiVersionsResponseApiKey()
		key.ApiKey, key.MinVersion, key.MaxVersion = kind.key, kind.min, kind.max
		response.ApiKeys = append(response.ApiKeys, key)
	}
	slices.SortFunc(response.ApiKeys, func(a, b kmsg.ApiVersionsResponseApiKey) int { return cmp.Compare(a.ApiKey, b.ApiKey) })
	return response
}

// maxSoftware is the longest name or version of a client.
const maxSoftware = 200

// validSoftware tells whether that may be a client's name or version.
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
