package gate

import (
	"net/http"
	"path"
	"strconv"
	"strings"
)

// kind is the form of answer to a request without a pass.
type kind uint8

const (
	// part is a request for a part of a page, such as an image or a frame: a short text.
	// It takes no place in line.
	part kind = iota
	// navigation is a person who opens a page: the waiting page.
	navigation
	// program is a client that reads JSON.
	program
)

// kindOf returns what a request wants: by Sec-Fetch-Dest, which browsers send only over
// TLS and to the local machine; otherwise by Accept; and where that takes anything, by
// the path's extension.
func kindOf(r *http.Request) kind {
	switch r.Method {
	case http.MethodOptions, http.MethodTrace: // Browsers ask by OPTIONS, without cookies, what a page may ask for.
		return part
	case http.MethodHead: // Nobody sees the page.
		return part
	}
	header := r.Header
	// A page of another site must not take places from its visitors' addresses.
	if mode := header.Get("Sec-Fetch-Mode"); header.Get("Sec-Fetch-Site") == "cross-site" && mode != "" && mode != "navigate" {
		return part
	}
	if header.Get("Upgrade") != "" || strings.Contains(header.Get("Sec-Purpose"), "prefetch") || header.Get("Purpose") == "prefetch" {
		return part
	}
	html, json := accepted(header.Values("Accept"))
	switch header.Get("Sec-Fetch-Dest") {
	case "document":
		return navigation
	case "", "empty":
	default:
		return part
	}
	switch {
	case html > 0 && html >= json:
		return navigation
	case json > 0:
		return program
	case header.Get("Sec-Fetch-Dest") == "empty", header.Get("Accept") != "" && !takesAnything(header.Values("Accept")),
		partExtensions[strings.ToLower(path.Ext(r.URL.Path))]:
		return part
	}
	return navigation
}

// partExtensions are the extensions of files that are parts of pages.
var partExtensions = map[string]bool{
	".css": true, ".js": true, ".mjs": true, ".map": true, ".json": true, ".wasm": true, ".webmanifest": true,
	".png": true, ".jpg": true, ".jpeg": true, ".gif": true, ".webp": true, ".avif": true, ".svg": true, ".ico": true,
	".woff": true, ".woff2": true, ".ttf": true, ".otf": true, ".eot": true,
	".mp3": true, ".mp4": true, ".webm": true, ".m4a": true, ".ogg": true, ".vtt": true,
}

// accepted returns how much Accept wants HTML and JSON, 0 to 1; wildcards do not count.
func accepted(values []string) (html, json float64) {
	eachAccepted(values, func(media string, quality float64) {
		switch media {
		case "text/html", "application/xhtml+xml":
			html = max(html, quality)
		case "application/json", "application/problem+json":
			json = max(json, quality)
		}
	})
	return html, json
}

// takesAnything reports whether Accept has no media type before */*, as with curl and
// many libraries; that of an <img> or <link> names some first.
func takesAnything(values []string) bool {
	anything, other := false, false
	eachAccepted(values, func(media string, quality float64) {
		if quality == 0 {
			return
		}
		if media == "*/*" {
			anything = true
		} else if !anything {
			other = true
		}
	})
	return anything && !other
}

// eachAccepted calls back with each media range of Accept, in lower case, and its
// quality. Malformed ranges are skipped.
func eachAccepted(values []string, visit func(media string, quality float64)) {
	for _, value := range values {
		for item := range strings.SplitSeq(value, ",") {
			media, parameters, _ := strings.Cut(item, ";")
			media = strings.ToLower(strings.TrimSpace(media))
			quality, ok := qualityOf(parameters)
			if media == "" || !ok {
				continue
			}
			visit(media, quality)
		}
	}
}

func qualityOf(parameters string) (float64, bool) {
	for parameter := range strings.SplitSeq(parameters, ";") {
		name, value, _ := strings.Cut(strings.TrimSpace(parameter), "=")
		if !strings.EqualFold(strings.TrimSpace(name), "q") {
			continue
		}
		quality, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
		// The negation refuses NaN too.
		if err != nil || !(quality >= 0 && quality <= 1) {
			return 0, false
		}
		return quality, true
	}
	return 1, true
}
