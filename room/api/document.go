package api

import _ "embed"

// openAPI is written by hand; tests compare it with what is answered.
//
//go:embed openapi.json
var openAPI []byte

func (s *server) document(e *exchange) error {
	e.w.Header().Set("Content-Type", "application/openapi+json")
	_, _ = e.w.Write(openAPI) // The client has gone if it fails.
	return nil
}
