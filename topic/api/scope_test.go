package api_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/sluice-project/sluice/access"
	"github.com/sluice-project/sluice/topic/api"
	"github.com/sluice-project/sluice/topic/delay"
)

// Topics and groups beyond the limits of a token do not exist for it.
func TestATokenHasItsTopicsAndGroups(t *testing.T) {
	for _, test := range []struct {
		limited     access.Principal
		topic, lag  int
		lagOf, lags string
	}{
		{access.Principal{}, 200, 200, "orders", "paid"},
		{access.Principal{Topics: []string{"remind*", "orders"}, Groups: []string{"billing/*"}}, 200, 200, "orders", ""},
		{access.Principal{Topics: []string{"orders"}, Groups: []string{"billing"}}, 404, 404, "", ""},
	} {
		broker := &fake{waiting: []delay.Waiting{{ID: "a", DeliverAt: time.Now()}}}
		handler := api.New(broker)
		ask := func(method, path string) *httptest.ResponseRecorder {
			request := httptest.NewRequest(method, path, nil)
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, request.WithContext(access.With(request.Context(), &test.limited)))
			return w
		}
		if w := ask("GET", "/v1/topics/reminders/delayed"); w.Code != test.topic {
			t.Errorf("%+v: %d %s", test, w.Code, w.Body)
		}
		if w := ask("DELETE", "/v1/topics/reminders/delayed/a"); (w.Code == http.StatusNoContent) != (test.topic == http.StatusOK) || (len(broker.waiting) == 0) != (test.topic == http.StatusOK) {
			t.Errorf("%+v: %d %s, %d wait", test, w.Code, w.Body, len(broker.waiting))
		}
		if w := ask("GET", "/v1/groups/billing%2Feu"); w.Code != test.lag || !strings.Contains(w.Body.String(), test.lagOf) || strings.Contains(w.Body.String(), "paid") != (test.lags == "paid") {
			t.Errorf("%+v: %d %s", test, w.Code, w.Body)
		}
	}
}
