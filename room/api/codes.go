package api

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/sluice-project/sluice/internal/edge"
)

// codesOrder says which codes to make.
type codesOrder struct {
	Count int       `json:"count" minimum:"1" maximum:"10000" doc:"How many."`
	Lane  string    `json:"lane,omitempty" maxLength:"64" doc:"The lane of their visitors. Default: the last."`
	Until time.Time `json:"until" doc:"When they end, at most 366 days ahead: at the end of that hour."`
}

type codesView struct {
	Codes []string `json:"codes" nullable:"false"`
}

func (s *server) makeCodes(e *edge.Exchange) error {
	var order codesOrder
	if err := json.Unmarshal(e.In, &order); err != nil {
		return notJSON(err)
	}
	codes, err := s.engine.MakeCodes(e.R.Context(), e.Path("room"), order.Lane, order.Count, order.Until)
	if err != nil {
		return err
	}
	return e.AnswerValue(http.StatusCreated, codesView{codes})
}

func (s *server) revokeCodes(e *edge.Exchange) error {
	return e.NoContent(s.engine.RevokeCodes(e.R.Context(), e.Path("room")))
}
