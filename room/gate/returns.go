package gate

import (
	"bytes"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	template "github.com/DataDog/datadog-agent/pkg/template/html"
)

// resendPage has a form of another site again. A browser sends the visitor's cookies with it,
// since it comes from this site.
var resendPage = template.Must(template.New("resend").Parse(`<!doctype html>
<html lang="{{.Words.Lang}}"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{{.Words.Continue}}</title></head>
<body><form method="post" action="{{.Action}}">{{range .Fields}}<input type="hidden" name="{{.Name}}" value="{{.Value}}">{{end}}
<button autofocus>{{.Words.Continue}}</button></form>
<script nonce="{{.Nonce}}">HTMLFormElement.prototype.submit.call(document.forms[0])</script></body></html>
`))

// field is one of a form, in its order.
type field struct{ Name, Value string }

// resend answers a form that another site has sent to one of the site's Returns, without
// cookies, with a page that sends it again; it reports false for any other request. Nothing is
// kept.
func (v *visit) resend() bool {
	media, _, err := mime.ParseMediaType(v.r.Header.Get("Content-Type"))
	if err != nil || media != "application/x-www-form-urlencoded" || v.r.Method != http.MethodPost ||
		v.ticket != "" || v.proof != "" || !v.site.returns(v.r) {
		return false
	}
	fields := v.readFields()
	if len(fields) == 0 {
		return false
	}
	nonce := newNonce()
	var body bytes.Buffer
	err = resendPage.Execute(&body, map[string]any{
		"Words": v.words(), "Action": localPath(v.r.URL.RequestURI()), "Fields": fields, "Nonce": nonce,
	})
	if err != nil {
		panic("gate: the page of a form cannot be written: " + err.Error())
	}
	header := v.w.Header()
	header.Set("Content-Type", "text/html; charset=utf-8")
	// There is no form-action, as in policy.
	header.Set("Content-Security-Policy", "default-src 'none'; script-src 'nonce-"+nonce+"'; base-uri 'none'; frame-ancestors 'self'")
	header.Set("Referrer-Policy", "same-origin") // without a referrer browsers hide the origin of the form too
	header.Set("X-Robots-Tag", "noindex")
	v.write(http.StatusOK, body.Bytes())
	return true
}

// readFields reads a form of at most MaxForm bytes, within FormTime; nil for one that is longer,
// or that a page in UTF-8 cannot send as it was.
func (v *visit) readFields() (fields []field) {
	control := http.NewResponseController(v.w)
	_ = control.SetReadDeadline(time.Now().Add(FormTime)) // a writer that has no connection has no deadline
	text, err := io.ReadAll(http.MaxBytesReader(v.w, v.r.Body, MaxForm))
	if err != nil {
		return nil
	}
	_ = control.SetReadDeadline(time.Time{})
	for pair := range strings.SplitSeq(string(text), "&") {
		if pair == "" {
			continue
		}
		name, value, _ := strings.Cut(pair, "=")
		name, err := url.QueryUnescape(name)
		value, wrong := url.QueryUnescape(value)
		if err != nil || wrong != nil || !sendable(name) || !sendable(value) {
			return nil
		}
		fields = append(fields, field{name, value})
	}
	return fields
}

// sendable reports whether a page can have a text in a form. HTML has no NUL.
func sendable(text string) bool { return utf8.ValidString(text) && !strings.Contains(text, "\x00") }

// returns reports whether each reading of a request's path is one of Returns.
func (s *site) returns(r *http.Request) bool {
	return len(s.returnPaths.Bypass) > 0 && !s.returnPaths.NeedsPass("", r.URL.Path, "")
}
