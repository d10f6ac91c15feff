package api

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/validation"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/api/wire"
	"github.com/sluice-project/sluice/bulk/engine"
	"github.com/sluice-project/sluice/internal/edge"
)

// quotaRetry is when what a quota refused may be tried again: actions may have ended by then.
const quotaRetry = 5 * time.Second

// received says how many jobs of the action are durable.
func received(e *edge.Error, count int64) *edge.Error {
	e.Received = &count
	return e
}

// refuse returns the problem of an error of the engine on an action.
func refuse(id string, err error) *edge.Error {
	var done *edge.Error
	var spec *bulk.SpecError
	var setting *bulk.SettingError
	var change *engine.ChangeError
	var exists *bulk.ExistsError
	var offset *bulk.OffsetError
	var transition *bulk.TransitionError
	var denied *bulk.DeniedError
	var quota *bulk.QuotaError
	switch {
	case errors.As(err, &denied):
		return edge.Refuse(http.StatusForbidden, wire.CodeForbidden, denied.Error())
	case errors.As(err, &done):
		return done
	case errors.As(err, &spec) && spec.Field == "events":
		return edge.InvalidField(http.StatusBadRequest, spec.Field, spec.Why)
	case errors.As(err, &spec):
		return edge.Invalid(spec.Field, spec.Why)
	case errors.As(err, &setting):
		return edge.Invalid(setting.Field, setting.Why)
	case errors.As(err, &change):
		return edge.Invalid(change.Field, change.Why)
	case errors.As(err, &exists):
		return edge.Refuse(http.StatusConflict, wire.CodeExists, exists.Error())
	case errors.As(err, &offset):
		return received(edge.Refuse(http.StatusConflict, wire.CodeOffset, offset.Error()), offset.Received)
	case errors.As(err, &transition):
		return edge.Refuse(http.StatusConflict, wire.CodeStatus, transition.Error())
	case errors.As(err, &quota):
		return edge.Refuse(http.StatusTooManyRequests, wire.CodeQuota, quota.Error()).RetryAfter(quotaRetry)
	case errors.Is(err, bulk.ErrNotFound):
		return edge.Refuse(http.StatusNotFound, wire.CodeNotFound, fmt.Sprintf("there is no action %q", id))
	case errors.Is(err, bulk.ErrFull):
		return edge.Refuse(http.StatusInsufficientStorage, wire.CodeFull,
			"the store is full and accepts no more; what it has accepted goes on. Free space on its disk, or wait until finished actions are removed; "+
				"if its events cannot be published, check the topic that receives them").Fault(err)
	case errors.Is(err, bulk.ErrUnavailable): // The engine logs it, once and not with each request.
		return edge.Refuse(http.StatusServiceUnavailable, wire.CodeUnavailable,
			"the store does not answer now: the request may have taken effect, and a retry is safe").RetryAfter(time.Second)
	case errors.Is(err, bulk.ErrBroken):
		return edge.Refuse(http.StatusServiceUnavailable, wire.CodeUnavailable,
			"the store is broken until the server restarts; everything it acknowledged is safe").RetryAfter(10 * time.Second).Fault(err)
	case errors.Is(err, bulk.ErrClosed):
		return edge.Refuse(http.StatusServiceUnavailable, wire.CodeUnavailable,
			"the server is shutting down; try again when it is back").RetryAfter(5 * time.Second).Fault(err)
	}
	if id != "" {
		err = fmt.Errorf("%q: %w", id, err)
	}
	return edge.Internal(err)
}

// explain says what is wrong with a rate; "" for other fields.
func explain(field string, detail *huma.ErrorDetail) string {
	switch {
	case field != "requests_per_second":
		return ""
	case detail.Value == "auto":
		return `"auto" is for targets only: give a number, 0 for no limit`
	case detail.Message == validation.MsgExpectedMatchExactlyOneSchema:
		return `want a number from 0 (no limit) to 1,000,000,000, or "auto"`
	}
	return ""
}
