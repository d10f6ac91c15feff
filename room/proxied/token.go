package proxied

import "net/http"

// The names under which a client shows a token.
const (
	tokenHeader = "Sluice-Token"
	tokenName   = "sluice_token" // of the cookie, and of the parameter of the query
)

// Token returns the token by which a shop says who made a request: that of the header
// Sluice-Token, or else of the query's sluice_token, or else of the cookie of that name;
// "" if there is none. It is not checked.
func Token(r *http.Request) string {
	if token := r.Header.Get(tokenHeader); token != "" {
		return token
	}
	if r.URL.RawQuery != "" {
		if token := r.URL.Query().Get(tokenName); token != "" {
			return token
		}
	}
	if len(r.Header["Cookie"]) > 0 { // to miss one takes longer than to see that there is none
		if c, err := r.Cookie(tokenName); err == nil {
			return c.Value
		}
	}
	return ""
}

// codeName is the parameter of a link with a code.
const codeName = "sluice_code"

// Code returns the code of a link, sluice_code in the query of a request; "" if there is none. It
// is not checked.
func Code(r *http.Request) string {
	if r.URL.RawQuery == "" {
		return ""
	}
	return r.URL.Query().Get(codeName)
}
