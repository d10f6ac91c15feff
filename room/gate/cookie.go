package gate

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/engine"
)

// How long cookies are kept: a ticket longer than any visit lasts, a pass for
// MaxPassLife.
const (
	ticketAge = 8 * 24 * time.Hour
	passAge   = engine.MaxPassLife
)

// hostPrefix begins the names of all cookies of visitors who use TLS: from then on only this
// host can set them, and only over TLS. Another host of the domain could hand a visitor
// somebody's place otherwise.
const hostPrefix = "__Host-"

// sentCookie returns a cookie of the request; nil if there is none.
func (v *visit) sentCookie(name string) *http.Cookie {
	for _, c := range v.sent {
		if c.Name == name {
			return c
		}
	}
	return nil
}

// sentAs returns the name under which the visitor sent a cookie, given its plain name. One
// with hostPrefix is believed before the plain one, which earlier releases set over TLS
// too.
func (v *visit) sentAs(plain string) (name string, sent bool) {
	for _, name := range []string{v.prefix + plain, plain} {
		if v.sentCookie(name) != nil {
			return name, true
		}
	}
	return v.prefix + plain, false
}

// cookie returns the value of a cookie, given its plain name; "" if there is none, or it is
// too long for one of the gate's.
func (v *visit) cookie(plain string) string {
	name, _ := v.sentAs(plain)
	if c := v.sentCookie(name); c != nil && len(c.Value) <= maxCookie {
		return c.Value
	}
	return ""
}

// setCookie sets a cookie, given its plain name; an empty value removes it. A visitor who
// uses TLS has none of that name without the prefix afterwards.
func (v *visit) setCookie(plain, value string, age time.Duration) {
	v.addCookie(v.prefix+plain, value, age)
	if v.prefix != "" {
		if v.sentCookie(plain) != nil {
			v.addCookie(plain, "", 0)
		}
	}
}

// addCookie adds a cookie to those that sendCookies sends.
func (v *visit) addCookie(name, value string, age time.Duration) {
	seconds := int(age / time.Second)
	if value == "" {
		seconds = -1
	}
	v.cookies = append(v.cookies, &http.Cookie{
		Name: name, Value: value, Path: "/", MaxAge: seconds,
		HttpOnly: true, SameSite: http.SameSiteLaxMode, Secure: v.prefix != "",
	})
}

// sendCookies adds the cookies to the header when the answer begins: earlier answers of
// 1xx would take them. An answer with cookies must not be stored, whatever the upstream
// says: a cache would hand the place to others.
func (v *visit) sendCookies() {
	if len(v.cookies) == 0 {
		return
	}
	header := v.w.Header()
	for _, c := range v.cookies {
		http.SetCookie(v.w, c)
	}
	v.cookies = nil
	header.Set("Cache-Control", "no-store")
	for _, name := range cacheHeaders {
		header.Del(name)
	}
}

// cacheHeaders are the headers that caches prefer to Cache-Control.
var cacheHeaders = []string{
	"CDN-Cache-Control", "Cloudflare-CDN-Cache-Control", "Surrogate-Control", "Edge-Control", "X-Accel-Expires",
}

// clearCookies removes all cookies of the visitor.
func (v *visit) clearCookies() {
	for _, plain := range []string{v.door.ticketCookie, v.door.passCookie, v.door.lineCookie} {
		if _, sent := v.sentAs(plain); sent {
			v.setCookie(plain, "", 0)
		}
	}
}

// secure reports whether a visitor uses TLS.
func (g *Gate) secure(r *http.Request) bool {
	return g.options.SecureCookies || r.TLS != nil ||
		trustedPeer(r, g.options.TrustedProxies) && strings.EqualFold(r.Header.Get("X-Forwarded-Proto"), "https")
}

// trustedPeer reports whether the connection comes from a trusted proxy.
func trustedPeer(r *http.Request, trusted []netip.Prefix) bool {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return false
	}
	address := peer.Addr().Unmap().WithZone("")
	return slices.ContainsFunc(trusted, func(p netip.Prefix) bool { return p.Contains(address) })
}

// lineNote is the value of lineCookie: the first position, why an earlier place was lost, and when
// the visitor joined, in seconds since 1970; 0 if that is not known.
type lineNote struct {
	start  int64
	lost   room.Reason
	joined int64
}

func (n lineNote) String() string {
	text := strconv.FormatInt(n.start, 10) + "." + string(n.lost)
	if n.joined > 0 {
		text += "." + strconv.FormatInt(n.joined, 10)
	}
	return text
}

// parseLineNote reads a note. It is not signed: a visitor who changes it changes only the own
// progress bar, and the own wait in the metrics.
func parseLineNote(text string, w *Words) lineNote {
	number, rest, _ := strings.Cut(text, ".")
	reason, joined, _ := strings.Cut(rest, ".")
	n := lineNote{start: natural(number, 1<<40), joined: natural(joined, 1<<40)}
	if _, known := w.Gone[room.Reason(reason)]; known {
		n.lost = room.Reason(reason)
	}
	return n
}

// natural reads a number from 1 to most; 0 if the text is none.
func natural(text string, most int64) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > most {
		return 0
	}
	return n
}

// waited returns the time since the visitor joined; false if that is not known, or nobody can have
// kept a place for that long.
func (n lineNote) waited(now time.Time) (time.Duration, bool) {
	waited := max(now.Sub(time.Unix(n.joined, 0)), 0)
	return waited, n.joined > 0 && waited <= ticketAge
}

// passEnds returns when a pass ends, without checking it: that only decides whether the
// cookie is renewed. Zero: it cannot be read.
func passEnds(pass string) time.Time {
	_, rest, _ := strings.Cut(pass, ".")
	payload, _, _ := strings.Cut(rest, ".")
	text, err := base64.RawURLEncoding.DecodeString(payload)
	if err != nil {
		return time.Time{}
	}
	var claims struct {
		Expires float64 `json:"exp"`
	}
	if json.Unmarshal(text, &claims) != nil || claims.Expires <= 0 {
		return time.Time{}
	}
	return time.UnixMilli(int64(claims.Expires * 1000))
}
