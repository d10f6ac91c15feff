package web

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/sluice-project/sluice/access"
	"github.com/sluice-project/sluice/access/audit"
)

type tokenRow struct {
	Name, Roles, Limits, Created, Expires string
	Expired                               bool
	Acts                                  []link
}

type tokenList struct {
	Off    bool
	Sub    []link
	Tokens []tokenRow
	Pages  pager
}

type auditRow struct {
	Time, Token, Address, Operation, Resources string
	Outcome                                    pill
	Code                                       string
	Count                                      int
}

type auditList struct {
	Off     bool
	Sub     []link
	Find    string
	Entries []auditRow
}

const accessPath = Prefix + "access"

func (d *Dashboard) showAccess() {
	d.show(accessPath, "access", d.tokens)
	d.show(accessPath+"/audit", "audit", d.auditPage)
}

func accessSub(r *request) []link {
	return r.sub([2]string{"access.tokens", "access"}, [2]string{"access.audit", "access/audit"})
}

func (d *Dashboard) tokens(r *request) (string, any, error) {
	if err := need(r.Context(), access.ManageAccess); err != nil {
		return "", nil, err
	}
	list := tokenList{Off: d.options.Accounts == nil, Sub: accessSub(r)}
	if list.Off {
		return r.t("access.tokens"), list, nil
	}
	var names []string
	known := map[string]access.Token{}
	for _, t := range d.options.Accounts.List() {
		names, known[t.Name] = append(names, t.Name), t
	}
	names, next := r.cut(union(slices.Values(names)))
	for _, name := range names {
		list.Tokens = append(list.Tokens, r.token(known[name]))
	}
	list.Pages = r.page(next)
	return r.t("access.tokens"), list, nil
}

func (r *request) token(t access.Token) tokenRow {
	row := tokenRow{
		Name: t.Name, Roles: access.JoinRoles(t.Roles), Created: r.ago(t.Created), Expires: r.ago(t.Expires), Expired: !t.Expires.IsZero() && !time.Now().Before(t.Expires), Acts: r.acts(t.Name, "revoke_token"),
	}
	var limits []string
	for _, of := range []struct {
		kind  string
		names []string
	}{{"tenants", t.Tenants}, {"types", t.Types}, {"rooms", t.Rooms}, {"topics", t.Topics}, {"groups", t.Groups}} {
		if len(of.names) > 0 {
			limits = append(limits, of.kind+": "+strings.Join(of.names, ", "))
		}
	}
	row.Limits = strings.Join(limits, "; ")
	return row
}

// auditPage shows the latest entries of the trail of this server.
func (d *Dashboard) auditPage(r *request) (string, any, error) {
	if err := need(r.Context(), access.ManageAccess); err != nil {
		return "", nil, err
	}
	list := auditList{Off: d.options.Audit == nil, Sub: accessSub(r), Find: r.get("find")}
	for _, e := range d.options.Audit.Latest() {
		row := auditRow{
			Time: clock(e.Time), Token: e.Token, Address: e.Address, Operation: e.Operation, Resources: strings.Join(e.Resources, ", "), Code: e.Code, Count: e.Count,
			Outcome: pill{map[audit.Outcome]string{audit.Refused: "bad", audit.Unauthenticated: "bad", audit.Failed: "warn"}[e.Outcome], r.word("outcome.", string(e.Outcome))},
		}
		if strings.Contains(strings.Join([]string{row.Token, row.Address, row.Operation, row.Resources, string(e.Outcome)}, " "), list.Find) {
			list.Entries = append(list.Entries, row)
		}
	}
	return r.t("access.audit"), list, nil
}

func accountsOn(d *Dashboard) bool { return d.options.Accounts != nil }

func askRevoke(d *Dashboard, r *request, name, _ string) (string, error) {
	for _, t := range d.options.Accounts.List() {
		if t.Name == name {
			return r.t("ask.revoke_token", name, access.JoinRoles(t.Roles)), nil
		}
	}
	return "", access.ErrNotFound
}

func revokeToken(ctx context.Context, d *Dashboard, name, _ string) error {
	return d.options.Accounts.Revoke(ctx, name)
}
