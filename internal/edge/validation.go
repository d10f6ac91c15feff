package edge

import (
	"cmp"
	"net/http"
	"regexp"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/validation"

	"github.com/sluice-project/sluice/internal/edge/problem"
)

// partOf is the key of the part in the metadata of an operation.
const partOf = "part"

// reshape makes problems of the framework's own errors: those of requests that do
// not match the declarations. It is a huma.Transformer.
func reshape(ctx huma.Context, _ string, value any) (any, error) {
	model, ok := value.(*huma.ErrorModel)
	if !ok {
		return value, nil
	}
	operation := ctx.Operation()
	part := operation.Metadata[partOf].(*Part)
	switch model.Status {
	case http.StatusRequestEntityTooLarge:
		return tooLarge(operation.MaxBodyBytes - 1).Problem, nil
	case http.StatusRequestTimeout:
		return TooSlow().Problem, nil
	case http.StatusUnsupportedMediaType:
		return wrongType(ctx.Header("Content-Type")).Problem, nil
	}
	if model.Status >= http.StatusInternalServerError {
		return part.refusal(ctx.Context(), operation.OperationID, Internal(model)).Problem, nil
	}
	p := Refuse(model.Status, problem.Invalid, brief(model.Detail)).Problem
	for _, detail := range model.Errors[:min(len(model.Errors), maxErrors)] {
		e := part.fieldError(detail)
		p.Errors = append(p.Errors, problem.FieldError{Field: brief(e.Field), Detail: brief(e.Detail)})
	}
	p.Detail = cmp.Or(problem.Join(p.Errors), p.Detail)
	return p, nil
}

// notWhole matches what encoding/json says of a number such as 3.0 or 1e3, which
// is an integer to the schema but not to a Go field.
var notWhole = regexp.MustCompile(`^json: cannot unmarshal number (\S+) into Go struct field [^.]+\.(\S+) of type u?int`)

// fieldError names the field and says in our words what is wrong with it.
func (p *Part) fieldError(detail *huma.ErrorDetail) problem.FieldError {
	place, field, _ := strings.Cut(detail.Location, ".")
	if place != "body" && field == "" {
		field = place
	}
	e := problem.FieldError{Field: field, Detail: detail.Message}
	if number := notWhole.FindStringSubmatch(detail.Message); number != nil {
		return problem.FieldError{Field: number[2], Detail: number[1] + ": want a whole number, without a point or an exponent"}
	}
	if missing, ok := strings.CutPrefix(detail.Message, "expected required property "); ok {
		name := strings.TrimSuffix(missing, " to be present")
		return problem.FieldError{Field: strings.TrimPrefix(field+"."+name, "."), Detail: "is required"}
	}
	if detail.Message == validation.MsgUnexpectedProperty {
		e.Detail = "unknown field"
	}
	if p.options.Explain != nil {
		e.Detail = cmp.Or(p.options.Explain(field, detail), e.Detail)
	}
	return e
}
