package web

import (
	"fmt"
	"net/http"
	"time"

	"golang.org/x/text/language"
)

// lang is the cookie and the parameter with the chosen language.
const langParameter = "lang"

// languages are those that there are; the first is the default.
var languages = []*uiLanguage{
	{code: "en", name: "English", words: english},
	{code: "ko", name: "한국어", words: korean},
}

var matcher = language.NewMatcher([]language.Tag{language.English, language.Korean})

// uiLanguage is a language of the pages.
type uiLanguage struct {
	code, name string
	words      map[string]string
}

// t returns the text of a key, with its arguments as in fmt.Sprintf. A key that the language does not
// have is a mistake in the program.
func (l *uiLanguage) t(key string, args ...any) string {
	text, ok := l.words[key]
	if !ok {
		panic(fmt.Sprintf("web: there is no text %q in %s", key, l.code))
	}
	if len(args) == 0 {
		return text
	}
	return fmt.Sprintf(text, args...)
}

// word returns the text of a state or a reason of a part, which has the key family + name; the name
// itself, if the part has one that is not known here.
func (l *uiLanguage) word(family, name string) string {
	if text, ok := l.words[family+name]; ok {
		return text
	}
	return name
}

// choose returns the language that a request asks for: by its parameter, which is kept in a cookie,
// by that cookie, or by what the browser accepts.
func choose(w http.ResponseWriter, r *http.Request) *uiLanguage {
	if l := find(r.URL.Query().Get(langParameter)); l != nil {
		http.SetCookie(w, &http.Cookie{
			Name: "sluice-" + langParameter, Value: l.code, Path: Prefix, MaxAge: int((365 * 24 * time.Hour).Seconds()),
			HttpOnly: true, SameSite: http.SameSiteLaxMode, Secure: r.TLS != nil,
		})
		return l
	}
	if cookie, err := r.Cookie("sluice-" + langParameter); err == nil {
		if l := find(cookie.Value); l != nil {
			return l
		}
	}
	_, i := language.MatchStrings(matcher, r.Header.Get("Accept-Language"))
	return languages[i]
}

func find(code string) *uiLanguage {
	for _, l := range languages {
		if l.code == code {
			return l
		}
	}
	return nil
}
