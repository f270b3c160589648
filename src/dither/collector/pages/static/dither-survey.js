// <dither-survey campaign="ID" server="https://collector" ticket="..." lang="de">: a survey inside a page of another site.
// The collector's operator lists the origins that may (dither serve --embed-origin). The page around it can see what is typed.
import { survey } from './survey.js';

const PATH = /^[0-9a-f]{32}$/;

class DitherSurvey extends HTMLElement {
  async connectedCallback() {
    if (this.shadowRoot) return;
    const root = this.attachShadow({ mode: 'open' }), server = new URL(this.getAttribute('server') ?? import.meta.url).origin;
    try {
      const campaign = this.getAttribute('campaign') ?? '', language = this.getAttribute('lang') || navigator.language.split('-')[0];
      if (!PATH.test(campaign)) throw new Error('campaign must be the 32 hexadecimal digits of a campaign');
      const get = async (path) => {
        const answer = await fetch(server + path, { credentials: 'omit', referrerPolicy: 'no-referrer' });
        if (!answer.ok) throw new Error(`${server} answers ${answer.status}`);
        return answer.text();
      };
      const [sheet, part] = [new CSSStyleSheet(), await get(`/c/${campaign}/survey?language=${encodeURIComponent(language)}`)];
      sheet.replaceSync((await get('/scripts/dither.css')).replaceAll(':root', ':host'));
      root.adoptedStyleSheets = [sheet];
      root.append(...new DOMParser().parseFromString(part, 'text/html').body.childNodes);
      survey(root.getElementById('participate'), { server, fragment: this.getAttribute('ticket') ?? '' });
    } catch (error) {
      root.textContent = `This survey cannot be shown (${error.message}). Nothing was sent.`;
    }
  }
}
customElements.define('dither-survey', DitherSurvey);
