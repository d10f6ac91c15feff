package gate

import (
	"bufio"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"

	"golang.org/x/text/language"
)

// previewed returns the answer to a request of a path.
func previewed(t *testing.T, of http.Handler, path string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	of.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w
}

// Each page that the preview lists is shown in its language, by the template as it is now.
func TestPreview(t *testing.T) {
	site := Site{Brand: "The Shop"}
	var broken error
	of, err := Preview(func() (Site, error) { return site, broken }, nil)
	if err != nil {
		t.Fatal(err)
	}
	links := regexp.MustCompile(`href="(/pages/([^/]+)/\d+)"`).FindAllStringSubmatch(previewed(t, of, "/").Body.String(), -1)
	if want := len(samples(english)) * len(Languages()); len(links) != want {
		t.Errorf("%d pages are listed, want %d", len(links), want)
	}
	for _, link := range links {
		page := previewed(t, of, link[1])
		if body := page.Body.String(); page.Code != http.StatusOK || !strings.Contains(body, `<html lang="`+link[2]+`" `) || !strings.Contains(body, "The Shop") {
			t.Errorf("%s: %d %.200s", link[1], page.Code, body)
		}
	}
	site.Template = mustParse(t, "{{.Heading}} of our own")
	if body := previewed(t, of, "/pages/en/0").Body.String(); !strings.HasSuffix(body, " of our own") {
		t.Errorf("with a template: %.200s", body)
	}
	broken = errors.New("line 3: what is this?")
	if page := previewed(t, of, "/pages/en/0"); page.Code != http.StatusInternalServerError || !strings.Contains(page.Body.String(), "line 3") {
		t.Errorf("with a template that is not one: %d %s", page.Code, page.Body)
	}
	broken = nil
	for _, path := range []string{"/pages/en/99", "/pages/en/-1", "/pages/en/x", "/pages/de/0", "/x"} {
		if page := previewed(t, of, path); page.Code != http.StatusNotFound {
			t.Errorf("%s: %d", path, page.Code)
		}
	}
	if page := previewed(t, of, "/.sluice/sample/leave"); page.Code != http.StatusSeeOther {
		t.Errorf("a form: %d", page.Code)
	}
	if _, err := Preview(func() (Site, error) { return Site{}, nil }, []language.Tag{language.German}); err == nil {
		t.Error("a language that is not written is accepted")
	}
}

// The line of a preview advances to its front and stays there; one that is not drawn stays so.
func TestPreviewAdvances(t *testing.T) {
	of, err := Preview(func() (Site, error) { return Site{}, nil }, nil)
	if err != nil {
		t.Fatal(err)
	}
	for start, want := range map[string][]string{"40": {"40", "37", "35"}, "2": {"2", "1", "1"}, "0": {"0", "0", "0"}} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 2*previewStep+previewStep/2)
			defer cancel()
			w := httptest.NewRecorder()
			of.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/.sluice/sample/watch?position="+start, nil).WithContext(ctx))
			var got []string
			for lines := bufio.NewScanner(w.Body); lines.Scan(); {
				if match := regexp.MustCompile(`"position":(\d+)`).FindStringSubmatch(lines.Text()); match != nil {
					got = append(got, match[1])
				}
			}
			if strings.Join(got, " ") != strings.Join(want, " ") {
				t.Errorf("from %s: %v, want %v", start, got, want)
			}
		})
	}
}
